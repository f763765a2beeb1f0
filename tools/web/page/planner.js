// The form and its state in the URL. All answers come from planner_core (WebAssembly), which is the code of
// `trainhost plan`; this file only makes a request of the form and shows the answer.
'use strict';
const form = document.getElementById('form');
const $ = id => document.getElementById(id);
const FRAMEWORKS = ['', 'pytorch', 'transformers', 'fsdp2', 'deepspeed', 'torchtitan', 'torchtune', 'litgpt', 'megatron',
  'axolotl', 'llama-factory', 'unsloth'];
const KEYS = ['train.precision', 'data.seq_len', 'train.micro_batch', 'train.grad_accum', 'optimizer.name',
  'train.recompute', 'memory.host_budget'];
let core, last, linked = true;  // linked: the address has the state of the form

const field = name => form.elements[name];
const value = name => field(name).value.trim();

/// The request of the form; also what tests send. Throws Missing where a text is needed.
function requestOf() {
  const request = {set: [], files: {}, html: true};
  const source = value('source');
  if (source === 'model') request.model = value('model');
  else addFiles(request, source);
  request.device = value('device');
  request.budget = value('budget');
  request.for = value('for');
  const set = (key, v) => request.set.push(`${key}=${v}`);
  for (const key of KEYS) if (value(key)) set(key, value(key));
  const split = {};
  let model = 1;
  for (const key of ['parallel.tensor', 'parallel.pipeline', 'parallel.context']) {
    const n = Number(value(key)) || 1;
    if (n > 1) split[key] = n;
    model *= n;
  }
  const devices = Number(value('devices')) || 1;
  for (const key in split) set(key, split[key]);
  if (Math.floor(devices / model) > 1) set('parallel.data', Math.floor(devices / model));
  if (value('parallel.zero') !== '0') set('parallel.zero', value('parallel.zero'));
  if (value('adapter')) {
    set('lora.rank', value('lora.rank') || 16);
    if (value('targets')) set('lora.targets', value('targets'));
    if (value('adapter') === 'qlora') set('lora.base', 'nf4');
  }
  for (const line of field('more').value.split('\n')) if (line.trim()) request.set.push(line.trim());
  return request;
}

function ask(request) {
  return JSON.parse(core.ccall('trainhost_plan', 'string', ['string'], [JSON.stringify(request)]));
}

/// A run that keeps states in host memory may fit the device and not the host. '' where it needs next to none.
function hostMemory(estimate, gib) {
  const needed = estimate.host_bytes || 0, budget = estimate.host_budget_bytes;
  if (budget) return `, ${gib(needed)} of ${gib(budget)} in host memory`;
  return needed < 2 ** 30 ? '' : `, and ${gib(needed)} in host memory, whose size is not given`;
}

function show(reply) {
  const answer = $('answer');
  answer.className = reply.waits ? '' : reply.error ? 'error' : reply.code === 0 ? '' : 'does-not-fit';
  last = reply;
  $('plan').hidden = Boolean(reply.error);
  $('run-file-box').hidden = Boolean(reply.error);
  if (reply.error) {
    answer.textContent = reply.error;
    return;
  }
  const plan = JSON.parse(reply.plan), estimate = plan.estimates[0];
  const gib = n => (n / 2 ** 30).toFixed(1) + ' GiB';
  const device = estimate.tiers.find(t => t.tier === 'device') || estimate.tiers[0];
  const verdict = {fits: 'Fits', fits_device: 'Fits the device', not_known: 'Not known', does_not_fit: 'Does not fit'};
  const onHost = hostMemory(estimate, gib);
  answer.textContent = verdict[estimate.verdict] + ': ' + gib(device.total_bytes) +
    (estimate.budget_bytes ? ` of ${gib(estimate.budget_bytes)} per device` : ' per device') + onHost;
  if (estimate.verdict === 'fits' || (estimate.verdict === 'fits_device' && !onHost)) answer.className = 'fits';
  $('run-file').textContent = reply.run_file;
  $('json').href = 'data:application/json,' + encodeURIComponent(reply.plan);
  const frame = $('plan');
  frame.onload = () => { frame.style.height = frame.contentDocument.documentElement.scrollHeight + 40 + 'px'; };
  frame.srcdoc = reply.html;
}

function showFields() {
  for (const e of form.querySelectorAll('[data-for]')) e.hidden = !e.dataset.for.split(' ').includes(value('source'));
  showFiles();
  for (const name of ['lora.rank', 'targets']) field(name).parentElement.hidden = !value('adapter');
}

/// Only what differs from the form as it was loaded.
function saveState() {
  const state = new URLSearchParams();
  for (const e of form.elements) if (e.name && e.value !== e.dataset.first) state.set(e.name, e.value);
  try {
    history.replaceState(null, '', '#' + state);
    linked = true;
  } catch (e) {  // browsers limit the length of an address
    linked = false;
  }
}
function loadState() {
  const state = new URLSearchParams(location.hash.slice(1));
  loadFiles(state);
  for (const e of form.elements) if (e.name) e.value = state.has(e.name) ? state.get(e.name) : e.dataset.first;
  // A key that has a field goes there.
  const rest = [];
  for (const line of field('more').value.split('\n')) {
    const [key, ...words] = line.split('='), e = form.elements[key.trim()];
    const before = e && e.value;
    if (e && words.length) e.value = words.join('=').trim();
    if (!e || !words.length || e.value !== words.join('=').trim()) {
      if (e) e.value = before;  // not one of its choices
      if (line.trim()) rest.push(line);
    }
  }
  field('more').value = rest.join('\n');
}

function update() {
  $('file-fault').textContent = '';
  showFields();
  saveState();
  const start = performance.now();
  show(reply(requestOf));
  document.body.dataset.milliseconds = (performance.now() - start).toFixed(1);
}

/// The answer to the request that `make` returns, or what is missing for it.
function reply(make) {
  try {
    return ask(make());
  } catch (e) {
    if (e instanceof Missing) return {code: 2, error: e.message, waits: e.waits};
    throw e;
  }
}

function fill(name, values, texts = values) {
  values.forEach((v, i) => field(name).append(new Option(texts[i], v)));
}

/// Without a secure context there is no clipboard but the selection.
function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  return Promise.resolve();
}

/// Shows the text on the button for a moment.
function note(button, text) {
  button.dataset.label ||= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = button.dataset.label; }, 1500);
}

function copy(button, text) {
  toClipboard(text).then(() => note(button, 'Copied'));
}

function start(module) {
  core = module;
  const lists = JSON.parse(core.ccall('trainhost_lists', 'string', [], []));
  fill('model', lists.models);
  fill('device', ['', ...lists.devices.map(d => d.name)], ['(only the memory below)', ...lists.devices.map(d => d.full_name)]);
  fill('for', FRAMEWORKS, ['trainhost', ...FRAMEWORKS.slice(1)]);
  for (const key of ['train.precision', 'train.recompute', 'optimizer.name'])
    fill(key, ['', ...lists.choices[key]], ['usual', ...lists.choices[key]]);
  startFiles();
  field('model').value = 'llama-3-8b';
  field('device').value = 'h100-80gb';
  for (const e of form.elements) if (e.name) e.dataset.first = e.value;
  // The state that `trainhost plan --web` has written into the page.
  const written = JSON.parse($('state').textContent);
  if (written && !location.hash) history.replaceState(null, '', '#' + written);
  loadState();
  update();
  form.addEventListener('input', update);
  form.addEventListener('submit', e => e.preventDefault());
  addEventListener('hashchange', () => { loadState(); update(); });
  $('limits').onclick = () => show(reply(() => ({...requestOf(), limits: true})));
  $('link').onclick = e => linked ? copy(e.target, location.href) : note(e.target, 'Too long for a link');
  $('copy-command').onclick = e => copy(e.target, last.command || '');
  $('copy-run-file').onclick = e => copy(e.target, $('run-file').textContent);
  document.documentElement.dataset.ready = '1';
  whenIdle(() => warmUp(WARM_UP));
}

/// Browsers compile a function when it is first called, and better when it is called often. So plans of several
/// kinds are made while nothing is entered: otherwise the first answer of a kind takes up to 170 ms.
const WARM_UP = ['', 'deepspeed', 'megatron', 'torchtitan', 'fsdp2', 'transformers'].flatMap(framework => [
  {model: 'llama-3.1-70b', device: 'rtx-4090', for: framework, set: ['data.seq_len=4096', 'train.precision=bf16']},
  {model: 'mistral-7b-v0.2', device: 'rtx-3060-ti', for: framework, set: ['parallel.data=4', 'parallel.zero=3']}]);
const whenIdle = window.requestIdleCallback || (f => setTimeout(f, 20));

function warmUp(requests) {
  if (requests.length === 0) {
    document.documentElement.dataset.warm = '1';
    return;
  }
  ask({...requests[0], files: {}, html: true});
  whenIdle(() => warmUp(requests.slice(1)));
}

/// The compiled planner is in the page, compressed, so that the page is one file that also opens from a disk.
async function unpacked() {
  const bytes = Uint8Array.from(atob($('core').textContent), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

unpacked().then(wasmBinary => TrainhostPlanner({wasmBinary})).then(start)
  .catch(e => { $('answer').textContent = 'The planner could not be loaded: ' + e; });
