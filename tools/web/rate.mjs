// Benchmark of the planner of the page in Node.js: processor time of each request in a file (one JSON object per
// line; tests/interop/plan_cases.py prints random ones), as the page asks for them.
//   node tools/web/rate.mjs build-web/planner_core.js REQUESTS [ROUNDS]      the least of ROUNDS
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {resolve} from 'node:path';

const [core, file, rounds = '1'] = process.argv.slice(2);
const planner = await createRequire(import.meta.url)(resolve(core))({wasmBinary: readFileSync(core.replace(/\.js$/, '.wasm'))});
const requests = readFileSync(file, 'utf8').split('\n').filter(line => line);
const LIMIT = 50, SHOWN = 12;  // milliseconds; requests
const times = requests.map(text => ({text, ms: Infinity}));
for (let round = 0; round < Number(rounds); ++round)
  for (const t of times) {
    const begin = process.cpuUsage();
    planner.ccall('trainhost_plan', 'string', ['string'], [JSON.stringify({...JSON.parse(t.text), html: true})]);
    const used = process.cpuUsage(begin);
    t.ms = Math.min(t.ms, (used.user + used.system) / 1000);
  }
times.sort((a, b) => b.ms - a.ms);
const above = times.filter(t => t.ms > LIMIT).length;
console.log(`${times.length} requests: median ${times[times.length >> 1].ms.toFixed(1)} ms, longest ` +
  `${times[0].ms.toFixed(1)} ms, ${above} above ${LIMIT} ms`);
for (const t of times.slice(0, SHOWN)) console.log(`${t.ms.toFixed(1).padStart(8)} ms  ${t.text}`);
