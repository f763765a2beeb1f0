"""The planner for browsers (tools/web) gives the answers of the program, to the byte: random runs in node. It is built by
hand, with tools/web/build, because that takes minutes; the test is skipped where it is not."""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

BUILD, SOURCE = map(pathlib.Path, sys.argv[1:3])
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 12
PAGE = SOURCE / "build-web/page"
NODE = r"""
delete globalThis.fetch;  // node's does not read files
const fs = require('fs'), [folder, cases] = process.argv.slice(2);
const load = require(folder + '/planner_core.js');
load({wasmBinary: fs.readFileSync(folder + '/planner_core.wasm')}).then(core => {
  const out = [];
  for (const request of JSON.parse(fs.readFileSync(cases))) {
    const begin = performance.now();
    const answer = JSON.parse(core.ccall('trainhost_plan', 'string', ['string'], [JSON.stringify(request)]));
    out.push({...answer, ms: performance.now() - begin});
  }
  fs.writeFileSync(cases, JSON.stringify(out));
});
"""


def random_case(r, models, devices):
    choose = r.choice
    settings = {"data.seq_len": choose([256, 1000, 2048, 4096, 8192]), "train.micro_batch": choose([1, 2, 3, 8])}
    for key, values in {"train.precision": ["fp32", "bf16"], "train.grad_accum": [1, 4], "parallel.tensor": [2, 4],
                        "train.recompute": ["none", "selective", "full", "auto"], "parallel.pipeline": [2],
                        "optimizer.name": ["adamw", "sgd", "adafactor", "adamw8bit"], "parallel.data": [4],
                        "parallel.zero": [1, 2, 3], "plan.attention": ["flash", "materialised"],
                        "plan.cross_entropy": ["fused", "plain"]}.items():
        if r.random() < 0.35:
            settings[key] = choose(values)
    if r.random() < 0.3:
        settings["lora.rank"] = choose([8, 16])
        if r.random() < 0.5:
            settings["lora.base"] = "nf4"
    return {"model": choose(models), "device": choose(devices), "safe": r.random() < 0.2,
            "for": choose(["", "", "pytorch", "transformers", "fsdp2", "deepspeed", "megatron", "torchtitan"]),
            "set": [f"{k}={v}" for k, v in settings.items()]}


def ask_program(case):
    words = [f"--model={case['model']}", f"--device={case['device']}", *(["--safe"] if case["safe"] else [])]
    if case["for"]:
        words.append(f"--for={case['for']}")
    for s in case["set"]:
        words += ["--set", s]
    return subprocess.run([BUILD / "bin/trainhost", "plan", "-q", "--json", *words], capture_output=True, text=True)


def listed(what):
    out = subprocess.run([BUILD / "bin/trainhost", what, "--json"], capture_output=True, text=True, check=True).stdout
    return [x["name"] for x in json.loads(out)[what]]


if not shutil.which("node") or not (PAGE / "planner_core.wasm").exists():
    print("skipped: node is missing, or the planner is not built (tools/web/build)")
    sys.exit(77)
size = sum(p.stat().st_size for p in PAGE.iterdir())
assert size <= 2_000_000, f"{PAGE} has {size} bytes"
# Models of a size that both answer in less than a second.
models = [m for m in listed("models") if not any(w in m for w in ("405b", "671b", "235b", "30b", "236b"))]
r = random.Random(1)
cases = [random_case(r, models, [d for d in listed("devices") if not d.startswith("xeon")]) for _ in range(CASES)]
with tempfile.TemporaryDirectory() as tmp:
    driver, file = pathlib.Path(tmp) / "driver.js", pathlib.Path(tmp) / "cases.json"
    driver.write_text(NODE)
    file.write_text(json.dumps(cases))
    subprocess.run(["node", driver, PAGE, file], check=True)
    answers = json.loads(file.read_text())
refused = 0
for case, answer in zip(cases, answers):
    program = ask_program(case)
    if "error" in answer:
        refused += 1
        first = program.stderr.split(": ", 1)[-1].strip()
        assert program.returncode == answer["code"] and answer["error"].split("\n")[0] in program.stderr, (
            case, answer, first)
    else:
        assert program.returncode == answer["code"], (case, answer["code"], program.stderr)
        assert program.stdout == answer["plan"], case
times = sorted(a["ms"] for a in answers)
print(f"ok: {CASES} cases, {refused} refused by both; median {times[len(times) // 2]:.0f} ms, largest {times[-1]:.0f} ms")
