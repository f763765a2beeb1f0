// Files that are pasted, chosen or dropped: one group of fields for each, whose names in the state of the form are
// file, text, file2, text2 and so on.
'use strict';
const MOST_BYTES = 1 << 20;  // of a configuration file, as in the program
const ABOUT = {
  config: 'The config.json of a model.',
  run: 'The run file, and the files that it names.',
  from: 'One file or several that describe one job: TrainingArguments with the JSON of DeepSpeed, the YAML of accelerate ' +
    'or a config.json; axolotl, LLaMA-Factory, torchtune and litgpt (YAML); torchtitan (TOML); Megatron-LM (script); ' +
    'a Python script or notebook with the calls of the Trainer, TRL, PEFT or Unsloth.',
};

/// What the request lacks. waits: nothing was entered yet.
class Missing extends Error {
  constructor(message, waits) {
    super(message);
    this.waits = Boolean(waits);
  }
}

const groups = () => [...document.querySelectorAll('#files .file')];
const nameField = group => group.querySelector('input');
const textField = group => group.querySelector('textarea');

/// The name of a text without one: it tells the syntax, as the name of a file does.
function nameOf(text) {
  if (/^\s*\{/.test(text)) {
    if (/"cell_type"\s*:/.test(text)) return 'train.ipynb';
    if (/"(architectures|hidden_size|num_hidden_layers|n_layer)"\s*:/.test(text)) return 'config.json';
    return /"(zero_optimization|train_micro_batch_size_per_gpu|train_batch_size)"\s*:/.test(text) ? 'deepspeed.json' : 'job.json';
  }
  if (/^#!.*python/.test(text) || /^(import|from)\s+[\w.]+/m.test(text)) return 'train.py';
  if (/^#!/.test(text) || /^\s*--[a-z]/m.test(text)) return 'job.sh';
  if (/^\s*\[[\w.]+\]\s*(#.*)?$/m.test(text)) return 'job.toml';
  return /^(compute_environment|distributed_type)\s*:/m.test(text) ? 'accelerate.yaml' : 'job.yaml';
}

/// Matches TOML with one of the tables: "[train]", "[plugins.NAME]", "train.steps = 10", "train = {...}".
const withTable = names => new RegExp(
  `^\\s*(?:\\[\\s*(?:${names})\\s*[\\].]|(?:${names})(?:\\.[\\w."-]+\\s*=|\\s*=\\s*\\{))`, 'm');
const RUN_FILE = withTable('model|data|train|optimizer|memory|parallel|plan|lora|output|plugins');
const TORCHTITAN = withTable('training|parallelism|job');  // which has [model] and [optimizer] too

/// Options of a command may look like keys of TOML: "tune run ... model.lora_rank=8".
function isRunFile(f) {
  const other = /\.(json|ya?ml|sh|py|ipynb)$/.test(f.name) || /\\$/m.test(f.text) || /^(job\.sh|train\.)/.test(nameOf(f.text));
  return !other && RUN_FILE.test(f.text) && !TORCHTITAN.test(f.text);
}

/// The run file among the files of source `run`.
const runFileOf = files => files.find(isRunFile) || files.find(f => f.name.endsWith('.toml')) || files[0];

/// Which source the files are of.
function sourceOf(files) {
  if (files.length === 1 && nameOf(files[0].text) === 'config.json') return 'config';
  return files.some(isRunFile) && !files.some(f => TORCHTITAN.test(f.text)) ? 'run' : 'from';
}

/// The groups with a text: of source `config` the first one alone, whose name is not asked for.
function filledOf(source) {
  const all = groups().map(g => ({name: nameField(g).value.trim(), text: textField(g).value}));
  const used = source === 'config' ? all.slice(0, 1).map(f => ({name: 'config.json', text: f.text})) : all;
  return used.filter(f => f.text.trim());
}

/// filledOf() with a name for each. First those that have one, because the others get free ones.
function filesOf(source) {
  const files = filledOf(source), runFile = runFileOf(files);
  const taken = new Set();
  for (const f of files) {
    if (!f.name) continue;
    if (taken.has(f.name)) throw new Missing(`Two files have the name ${f.name}: change one of them.`);
    if (f.name.endsWith('/')) throw new Missing(`${f.name} is the name of a folder: add that of the file.`);
    taken.add(f.name);
  }
  files.forEach(f => {
    if (f.name) return;
    const usual = source === 'run' && f === runFile ? 'run.toml' : nameOf(f.text);
    for (let n = 1; !f.name || taken.has(f.name); ++n) f.name = n === 1 ? usual : usual.replace('.', n + '.');
    taken.add(f.name);
  });
  return files;
}

const lastPart = path => path.replace(/^.*\//, '');
/// "./a//b" is the file "a/b".
const plain = path => path.split('/').filter((part, i) => part !== '.' && (part || !i)).join('/');

/// Paths by which other files name this one: "deepspeed: configs/zero3.json" for a file zero3.json.
function pathsOf(file, files) {
  const found = new Set();
  for (const other of files)
    if (other !== file)
      for (const word of other.text.match(/[\w./@+-]+/g) || [])
        if (lastPart(word) === lastPart(file.name) && !files.some(f => plain(f.name) === plain(word))) found.add(word);
  return [...found].slice(0, 8);
}

/// True where another file names this one as a part of itself, so that it is no file of its own.
function isPart(file, files) {
  return files.some(other => other !== file && [...other.text.matchAll(/fsdp_config["']?[\s:=]+["']?([\w./-]+)/g)].some(
    m => lastPart(m[1]) === lastPart(file.name)));
}

function addFiles(request, source) {
  const files = filesOf(source);
  if (!files.length) throw new Missing('Paste a file, choose one, or drop it on this page.', true);
  for (const f of files) for (const path of [f.name, ...pathsOf(f, files)]) request.files[path] = f.text;
  if (source === 'config') request.model = files[0].name;
  if (source === 'run') request.run_file = runFileOf(files).name;
  if (source === 'from') request.from = files.filter(f => !isPart(f, files)).map(f => f.name);
}

function showFiles() {
  const source = value('source'), all = groups(), runFile = runFileOf(filledOf(source));
  $('about-files').textContent = ABOUT[source] || '';
  all.forEach((g, i) => {
    g.querySelector('legend').textContent = source === 'config' ? 'config.json' : `File ${i + 1}`;
    g.hidden = source === 'config' && i > 0;
    nameField(g).parentElement.hidden = source === 'config';
    const text = textField(g).value;
    const isRun = source === 'run' && (runFile ? text === runFile.text : i === 0);
    nameField(g).placeholder = isRun ? 'run.toml' : text.trim() ? nameOf(text) : 'optional';
    const remove = g.querySelector('.remove');
    remove.hidden = all.length === 1;
    remove.setAttribute('aria-label', `Remove file ${i + 1}`);
  });
}

function addGroup() {
  const group = $('file').content.cloneNode(true).firstElementChild;
  $('files').append(group);
  renumber();
  group.querySelector('.remove').onclick = () => {
    const before = groups().indexOf(group);
    group.remove();
    renumber();
    update();
    const left = groups();
    nameField(left[Math.min(before, left.length - 1)]).focus();
  };
  for (const e of [nameField(group), textField(group)]) e.dataset.first = '';
  return group;
}

/// The names of the fields, by which the state in the address knows them.
function renumber() {
  groups().forEach((g, i) => {
    const number = i ? String(i + 1) : '';
    nameField(g).name = 'file' + number;
    textField(g).name = 'text' + number;
  });
}

/// As many groups as the state has files. Older links have a second text with the name `config`.
function loadFiles(state) {
  if (state.has('config')) {
    state.set('file2', 'config.json');
    state.set('text2', state.get('config'));
  }
  let most = 1;
  for (const key of state.keys()) {
    const m = /^(?:file|text)(\d{1,2})$/.exec(key);
    if (m) most = Math.max(most, Number(m[1]));
  }
  while (groups().length > most) groups().at(-1).remove();
  while (groups().length < most) addGroup();
}

const sizeOf = bytes => `${bytes.toLocaleString('en-US')} bytes`;

/// True if `f` is a newer text of an entered file. A job has one config.json, also without its name.
const isNewer = (f, name, text) => f.name === name || (!name && f.name === 'config.json' && nameOf(text) === f.name);

/// Enters files of the disk and changes the source where it is a preset or cannot have them.
function enter(files) {
  const source = value('source');
  if (source === 'config' && sourceOf(files) === 'config') {
    nameField(groups()[0]).value = files[0].name;
    textField(groups()[0]).value = files[0].text;
    return;
  }
  if (source === 'model' || source === 'config') {
    const others = filledOf(source).filter(o => !files.some(f => isNewer(f, o.name, o.text)));
    field('source').value = sourceOf([...others, ...files]);
  }
  for (const f of files) {
    const all = groups();
    // Else groups without a text are filled first.
    const group = all.find(g => isNewer(f, nameField(g).value.trim(), textField(g).value)) ||
      all.find(g => !textField(g).value.trim()) || addGroup();
    nameField(group).value = f.name;
    textField(group).value = f.text;
  }
}

/// Reads files of the disk, and says which of them are no configuration files.
async function take(list) {
  const faults = [], taken = [];
  for (const f of list) {
    if (f.size > MOST_BYTES) {
      faults.push(`${f.name} has ${sizeOf(f.size)}: a configuration file has at most ${sizeOf(MOST_BYTES)}.`);
      continue;
    }
    try {
      const text = new TextDecoder('utf-8', {fatal: true}).decode(await f.arrayBuffer());
      if (text.includes('\0')) throw new TypeError();
      if (text.trim()) taken.push({name: f.name, text});
      else faults.push(`${f.name} is empty.`);
    } catch (e) {
      faults.push(e instanceof TypeError ? `${f.name} is not a text file.` : `${f.name} cannot be read: ${e.message}`);
    }
  }
  if (taken.length) enter(taken);
  update();
  $('file-fault').textContent = faults.join(' ');
}

function startFiles() {
  addGroup();
  $('add-file').onclick = () => {
    const group = addGroup();
    showFiles();
    nameField(group).focus();
  };
  $('choose').onchange = e => {
    const list = [...e.target.files];
    e.target.value = '';  // so that the same file can be chosen again
    take(list);
  };
  addEventListener('dragover', e => { if (e.dataTransfer.types.includes('Files')) e.preventDefault(); });
  addEventListener('drop', e => {
    if (!e.dataTransfer.files.length) return;
    e.preventDefault();
    take([...e.dataTransfer.files]);
  });
}
