"""The planner for browsers (tools/web) gives the answers of the program, to the byte: random runs in headless Chromium. The
page is built by hand, with tools/web/build, because that takes minutes; the test is skipped where it is not.
  web_planner_test.py BUILD SOURCE [CASES [FOLDER FOR SCREENSHOTS]]"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from browser import Browser, find_chromium
from page_checks import faults

BUILD, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 12
PICTURES = sys.argv[4] if len(sys.argv) > 4 else None
PAGE = SOURCE / "build-web/page/index.html"


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


def words_of(case):
    words = [f"--model={case['model']}", f"--device={case['device']}", *(["--safe"] if case["safe"] else [])]
    if case["for"]:
        words.append(f"--for={case['for']}")
    for s in case["set"]:
        words += ["--set", s]
    return words


def ask_program(*words):
    return subprocess.run([BUILD / "bin/trainhost", "plan", "-q", "--json", *words], capture_output=True, text=True)


def listed(what):
    out = subprocess.run([BUILD / "bin/trainhost", what, "--json"], capture_output=True, text=True, check=True).stdout
    return [x["name"] for x in json.loads(out)[what]]


def same_answers(page):
    # Models of a size that both answer in less than a second.
    models = [m for m in listed("models") if not any(w in m for w in ("405b", "671b", "235b", "30b", "236b"))]
    r = random.Random(1)
    cases = [random_case(r, models, [d for d in listed("devices") if not d.startswith("xeon")]) for _ in range(CASES)]
    refused, times = 0, []
    for case in cases:
        answer = page.evaluate("(() => { const begin = performance.now(), a = ask(%s); "
                               "a.ms = performance.now() - begin; return a; })()" % json.dumps(case))
        program = ask_program(*words_of(case))
        times.append(answer["ms"])
        assert program.returncode == answer["code"], (case, answer["code"], program.stderr)
        if "error" in answer:
            refused += 1
            assert answer["error"].split("\n")[0] in program.stderr, (case, answer, program.stderr)
        else:
            assert program.stdout == answer["plan"], case
    times.sort()
    print(f"{CASES} cases, {refused} refused by both; median {times[len(times) // 2]:.0f} ms, largest {times[-1]:.0f} ms")


def filled_in(page, folder):
    """`plan --web=FILE`: the page has the run of the command line, and answers as the command does."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
              "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
              "vocab_size": 1000, "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "run.toml").write_text('[model]\nconfig = "config.json"\n[train]\nmicro_batch = 4\nsteps = 10\n'
                                     '[memory]\ndevice = "h100-80gb"\n')
    for words, fields in (
        (["--model=llama-3-8b", "--device=a100-80gb", "--for=pytorch", "--set", "train.precision=bf16", "--set",
          "parallel.data=4"], {"model": "llama-3-8b", "device": "a100-80gb", "train.precision": "bf16",
                               "more": "parallel.data=4"}),
        ([f"--model={folder}/config.json", "--budget=1GiB", "--device=h100-80gb"], {"source": "config", "budget": "1GiB"}),
        ([f"{folder}/run.toml", "--set", "data.seq_len=128"], {"source": "run", "device": ""}),
    ):
        file = folder / "planner.html"
        subprocess.run([BUILD / "bin/trainhost", "plan", "-q", *words, f"--web={file}"], check=True)
        page.call("Page.navigate", url="about:blank")
        page.open(f"file://{file}")
        for name, value in fields.items():
            assert page.evaluate(f"field({name!r}).value") == value, (words, name)
        program = json.loads(ask_program(*words).stdout)
        answer = json.loads(page.evaluate("last.plan || last.error"))
        assert program["estimates"] == answer["estimates"], (words, answer)


def pasted(page):
    """Files of other frameworks, pasted: the answer is that of the command for the file."""
    files = SOURCE / "tests/core/framework_files/files"
    for name in ("axolotl.yaml", "llama_factory.yaml", "llama_factory_v1.yaml", "torchtune.yaml", "litgpt.yaml",
                 "torchtitan.toml", "megatron.sh"):
        page.evaluate("location.hash = ''; field('source').value = 'from'; field('device').value = 'h100-80gb'; "
                      "field('text').value = %s; update()" % json.dumps((files / name).read_text()))
        answer = page.evaluate("last")
        program = ask_program("--device=h100-80gb", "--from", str(files / name))
        assert program.returncode == answer["code"], (name, answer.get("error"), program.stderr)
        if "error" in answer:
            assert answer["error"].split(": ", 1)[1].split("\n")[0] in program.stderr, (name, answer, program.stderr)
        else:
            assert json.loads(program.stdout)["estimates"] == json.loads(answer["plan"])["estimates"], name
        print(f"{name}: exit code {program.returncode}")


def used(page):
    """A change is answered, is in the address, and nothing is requested."""
    page.open(f"file://{PAGE}")
    assert page.wait("document.getElementById('answer').textContent.includes(' GiB')"), page.evaluate(
        "document.getElementById('answer').textContent")
    before = page.evaluate("document.getElementById('answer').textContent")
    page.evaluate("field('train.micro_batch').value = 64; field('train.micro_batch').dispatchEvent("
                  "new Event('input', {bubbles: true}))")
    after = page.evaluate("document.getElementById('answer').textContent")
    assert before != after and page.evaluate("location.hash") == "#train.micro_batch=64", (before, after)
    assert page.wait("!!document.getElementById('plan').contentDocument.querySelector('svg')"), "no chart"
    adapted = page.evaluate("(() => { field('adapter').value = 'lora'; field('targets').selectedIndex = 2; update(); "
                            "return [last.code, last.error, last.run_file]; })()")
    assert adapted[0] != 2 and '"lm_head"' in (adapted[2] or ""), adapted
    found = faults(page, PICTURES, "planner")
    assert not found, found
    asked = [r for r in page.requests if not r.startswith(("file:", "data:", "blob:", "about:"))]
    assert not asked, asked


if not find_chromium() or not PAGE.exists():
    print("skipped: no Chromium here, or the planner is not built (tools/web/build)")
    sys.exit(77)
assert PAGE.stat().st_size <= 2_000_000, f"{PAGE} has {PAGE.stat().st_size} bytes"
with Browser(find_chromium()) as page, tempfile.TemporaryDirectory() as tmp:
    used(page)
    filled_in(page, pathlib.Path(tmp))
    page.open(f"file://{PAGE}")
    pasted(page)
    page.open(f"file://{PAGE}")
    same_answers(page)
