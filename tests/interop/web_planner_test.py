"""The planner for browsers (tools/web) gives the answers of the program, to the byte: random runs in headless Chromium. The
page is built by hand, with tools/web/build, because that takes minutes; the test is skipped where it is not.
  web_planner_test.py BUILD SOURCE [CASES [FOLDER FOR SCREENSHOTS]]"""
import json
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, find_chromium
from page_checks import faults
from plan_cases import random_cases

BUILD, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 12
PICTURES = sys.argv[4] if len(sys.argv) > 4 else None
PAGE = SOURCE / "build-web/page/index.html"


def words_of(case):
    words = [f"--model={case['model']}", f"--device={case['device']}", *(["--safe"] if case["safe"] else [])]
    if case["for"]:
        words.append(f"--for={case['for']}")
    for s in case["set"]:
        words += ["--set", s]
    return words


def ask_program(*words):
    return subprocess.run([BUILD / "bin/trainhost", "plan", "-q", "--json", *words], capture_output=True, text=True)


def same_answers(page):
    cases = random_cases(BUILD, CASES)
    refused, times = 0, []
    # The page makes plans of several kinds while it waits, so that the browser has compiled the planner well.
    first = page.evaluate("last.plan")
    assert page.wait("document.documentElement.dataset.warm === '1'"), "no plans while the page waits"
    assert page.evaluate("last.plan") == first, "the answer that is shown has changed"
    for case in cases:
        request = json.dumps({**case, "files": {}, "html": True})  # as requestOf() makes it
        answer = page.evaluate("(() => { const begin = performance.now(), a = ask(%s); "
                               "a.ms = performance.now() - begin; delete a.html; return a; })()" % request)
        program = ask_program(*words_of(case))
        times.append((answer["ms"], " ".join(words_of(case))))
        assert program.returncode == answer["code"], (case, answer["code"], program.stderr)
        if "error" in answer:
            refused += 1
            assert answer["error"].split("\n")[0] in program.stderr, (case, answer, program.stderr)
        else:
            assert program.stdout == answer["plan"], case
    times.sort()
    slow = [f"{ms:.0f} ms {words}" for ms, words in times if ms > 50]
    print(f"{CASES} cases, {refused} refused by both; median {times[len(times) // 2][0]:.0f} ms, "
          f"largest {times[-1][0]:.0f} ms, {len(slow)} above 50 ms", *slow, sep="\n")


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


TRAINER = {"output_dir": "out", "model_name_or_path": "meta-llama/Meta-Llama-3-8B", "per_device_train_batch_size": 2,
           "gradient_accumulation_steps": 8, "max_length": 4096, "bf16": True, "gradient_checkpointing": True}
AXOLOTL = "base_model: %s\nsequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n"
ZERO = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
ACCELERATE = ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
              "fsdp_config:\n  fsdp_version: 2\n")
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
          "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4000}
# Names and texts of the files of one job; which of them the command is given, where it is not all of them.
JOBS = (
    ({"args.json": {**TRAINER, "deepspeed": "configs/zero3.json"}, "zero3.json": ZERO}, None),
    ({"args.json": TRAINER, "accelerate.yaml": ACCELERATE}, None),
    ({"job.yaml": AXOLOTL % "NousResearch/Llama-3.1-8B" + "deepspeed: configs/ds.json\n", "ds.json": ZERO}, None),
    ({"job.yaml": AXOLOTL % "acme/unknown-9b", "config.json": CONFIG}, None),
    ({"args.json": {**TRAINER, "fsdp": "full_shard auto_wrap", "fsdp_config": "fsdp.json"},
      "fsdp.json": {"version": 2, "activation_checkpointing": True}}, ["args.json"]),
)


def enter(page, files, source="from", device="h100-80gb"):
    """Types the files into the form, named or not."""
    state = {"source": source, "device": device, "more": "parallel.data=8"}
    for i, (name, text) in enumerate(files.items()):
        number = str(i + 1) if i else ""
        state["file" + number] = name
        state["text" + number] = text if isinstance(text, str) else json.dumps(text)
    page.evaluate("location.hash = '#' + new URLSearchParams(%s); loadState(); update()" % json.dumps(state))
    return page.evaluate("last")


def choose(page, files, by="choose"):
    """Chooses or drops files of the disk."""
    page.evaluate("""(async () => { const d = new DataTransfer();
      for (const [name, text] of %s) d.items.add(new File([text], name));
      if ('%s' === 'drop') return dispatchEvent(new DragEvent('drop', {dataTransfer: d, bubbles: true, cancelable: true}));
      $('choose').files = d.files; $('choose').dispatchEvent(new Event('change')); })()""" % (json.dumps(files), by))


def several_files(page):
    """Several files of one job: the answer of the command for them, however they were entered; clear errors."""
    for files, given in JOBS:
        answer = enter(page, files)
        with tempfile.TemporaryDirectory() as d:
            for name, text in files.items():
                for path in (name, "configs/" + name):
                    (pathlib.Path(d) / path).parent.mkdir(exist_ok=True)
                    (pathlib.Path(d) / path).write_text(text if isinstance(text, str) else json.dumps(text))
            program = subprocess.run([BUILD / "bin/trainhost", "plan", "-q", "--json", "--device=h100-80gb", "--set",
                                      "parallel.data=8", "--from", *(given or files)], capture_output=True, text=True, cwd=d)
        assert program.returncode == answer["code"], (list(files), answer.get("error"), program.stderr)
        assert json.loads(program.stdout)["estimates"] == json.loads(answer["plan"])["estimates"], list(files)
        before = page.evaluate("last.plan")
        page.evaluate("loadState(); update()")  # as another page with this address
        assert page.evaluate("last.plan") == before, list(files)
        print(f"{' '.join(files)}: exit code {program.returncode}")

    # Without names they are told by their texts; a file that was removed is not found any more.
    unnamed = enter(page, {"": json.dumps(TRAINER)}, device="h100-80gb")
    assert "error" not in unnamed, unnamed
    job = AXOLOTL % "NousResearch/Llama-3.1-8B" + "deepspeed: configs/ds.json\n"
    assert "no such file" in enter(page, {"job.yaml": job})["error"]
    page.evaluate("$('add-file').click()")
    assert page.evaluate("document.activeElement.name") == "file2", page.evaluate("document.activeElement.outerHTML")
    page.evaluate("field('file2').value = 'ds.json'; field('text2').value = %s; update()" % json.dumps(json.dumps(ZERO)))
    assert "error" not in page.evaluate("last"), page.evaluate("last.error")
    found = faults(page, PICTURES, "planner-files")
    assert not found, found
    page.evaluate("document.querySelectorAll('.remove')[1].click()")
    assert "no such file" in page.evaluate("last.error || ''"), page.evaluate("last.command")
    assert page.evaluate("document.activeElement.name") == "file", "focus is lost"
    assert not page.evaluate("location.hash").count("text2"), page.evaluate("location.hash")

    # Chosen or dropped; what is no configuration file is refused with its name.
    for by in ("choose", "drop"):
        page.evaluate("location.hash = ''; loadState(); update()")
        choose(page, [["args.json", json.dumps({**TRAINER, "deepspeed": "configs/zero3.json"})], ["zero3.json", json.dumps(ZERO)]], by)
        assert page.wait("field('source').value === 'from' && (last.error || '').includes('parallel.data')"), by
        assert page.evaluate("groups().length") == 2, by
    choose(page, [["zero3.json", json.dumps({**ZERO, "zero_optimization": {"stage": 2}})]])
    assert page.wait("groups().length === 2 && textField(groups()[1]).value.includes('\"stage\": 2')")
    choose(page, [["model.bin", "\0\1"], ["empty.yaml", ""], ["large.json", "x" * (1 << 20) + "x"]])
    assert page.wait("$('file-fault').textContent !== ''")
    said = page.evaluate("$('file-fault').textContent")
    assert "model.bin is not a text file." in said and "empty.yaml is empty." in said and "large.json has 1,048,577 bytes" in said, said
    twice = enter(page, {"a.yaml": job, "b.json": ZERO})
    page.evaluate("field('file2').value = 'a.yaml'; update()")
    assert page.evaluate("last.error") == "Two files have the name a.yaml: change one of them.", twice
    page.evaluate("location.hash = '#source=from'; loadState(); update()")
    assert page.evaluate("last.error").startswith("Paste a file") and page.evaluate("$('answer').className") == "", "prompt"
    # A run file and the config.json that it names; links of earlier pages have it as `config`.
    run = '[model]\nconfig = "config.json"\n[train]\nmicro_batch = 4\nsteps = 10\n'
    a = enter(page, {"run.toml": run, "config.json": CONFIG}, "run")
    page.evaluate("location.hash = '#' + new URLSearchParams({source: 'run', text: %s, config: %s, more: 'parallel.data=8'}); "
                  "loadState(); update()" % (json.dumps(run), json.dumps(json.dumps(CONFIG))))
    assert "error" not in a and page.evaluate("last.plan") == a["plan"], a.get("error")


def sources_of_files(page):
    """What chosen files are taken for, and which texts become files of the request."""
    titan = (SOURCE / "tests/core/framework_files/files/torchtitan.toml").read_text()
    config, run = json.dumps(CONFIG), '[model]\nconfig = "config.json"\n[parallel]\ndata = 8\n'
    dotted = 'model.preset = "gpt2"\ntrain.micro_batch = 2\n'
    for source, files, expected in (
        ("model", [["t.toml", titan]], "from"), ("model", [["r.toml", run]], "run"), ("model", [["r.toml", dotted]], "run"),
        ("model", [["config.json", config]], "config"), ("model", [["config.json", config], ["r.toml", run]], "run"),
        ("model", [["t.sh", "tune run x \\\n  model.rank=8\n"]], "from"), ("model", [["a.yaml", "model: gpt2\n"]], "from"),
        ("from", [["r.toml", run]], "from"), ("run", [["t.toml", titan]], "run"), ("run", [["a.yaml", "model: gpt2\n"]], "run"),
        ("config", [["other.json", config]], "config"), ("config", [["config.json", config], ["r.toml", run]], "run"),
    ):
        page.evaluate("location.hash = '#source=%s'; loadState(); update()" % source)
        choose(page, files)
        assert page.wait("groups().some(g => textField(g).value === %s)" % json.dumps(files[-1][1])), files
        assert page.evaluate("value('source')") == expected, (source, files, page.evaluate("value('source')"))
    # The run file is not the first file; the model that it names is.
    page.evaluate("location.hash = ''; loadState(); update()")
    choose(page, [["config.json", config], ["r.toml", run]])
    assert page.wait("value('source') === 'run'")
    assert page.evaluate("requestOf().run_file") == "r.toml" and "error" not in page.evaluate("last"), page.evaluate("last.error")
    # A newer config.json replaces the one that was pasted without a name.
    newer = json.dumps({**CONFIG, "num_hidden_layers": 12})
    for source in ("config", "run"):
        page.evaluate("location.hash = '#' + new URLSearchParams({source: '%s', text: %s, file2: '%s', text2: %s}); loadState(); "
                      "update()" % (source, json.dumps(config), "" if source == "config" else "r.toml",
                                    json.dumps("" if source == "config" else run)))
        choose(page, [["config.json", newer]])
        assert page.wait("field('text').value === %s" % json.dumps(newer)), source
        assert page.evaluate("value('source')") == source and page.evaluate("groups().length") == 1 + (source == "run"), source
    request = page.evaluate("field('source').value = 'config'; field('file').value = 'old/name.json'; requestOf()")
    assert request["model"] == "config.json" and list(request["files"]) == ["config.json"], request
    # A path by which a file is named is not that of another file.
    enter(page, {"job.yaml": "deepspeed: a/ds.json\nx: ./b/ds.json\ny: c/ds.json\n", "b/ds.json": "{\"b\": 1}",
                 "a/ds.json": "{\"a\": 1}"})
    files = page.evaluate("requestOf().files")
    assert files["a/ds.json"] == '{"a": 1}' and files["b/ds.json"] == '{"b": 1}' and "c/ds.json" in files, files
    assert "./b/ds.json" not in files, files
    # Faults are visible while a preset is chosen, until the next change; a state may be too long for the address.
    page.evaluate("location.hash = ''; loadState(); update()")
    choose(page, [["model.bin", "\0\1"]])
    assert page.wait("$('file-fault').textContent !== '' && $('file-fault').offsetHeight > 0"), "not visible"
    page.evaluate("update()")
    assert page.evaluate("$('file-fault').textContent") == ""
    said = page.evaluate("(() => { const before = history.replaceState; history.replaceState = () => { throw new Error(); }; "
                         "update(); $('link').click(); const said = $('link').textContent; history.replaceState = before; "
                         "update(); return [said, linked]; })()")
    assert said == ["Too long for a link", True], said


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
    # States in host memory: of a given size or not, the first line says how much.
    for budget, ends, colour in (("", " in host memory, whose size is not given", ""), ("64GiB", " of 64.0 GiB in host memory",
                                 "does-not-fit"), ("512GiB", " of 512.0 GiB in host memory", "fits")):
        page.evaluate("field('train.micro_batch').value = 1; field('memory.host_budget').value = '%s'; update()" % budget)
        said = page.evaluate("[$('answer').textContent, $('answer').className]")
        assert said[0].endswith(ends) and said[1] == colour, (budget, said)
    page.evaluate("field('memory.host_budget').value = ''; update()")
    adapted = page.evaluate("(() => { field('adapter').value = 'lora'; field('targets').selectedIndex = 2; update(); "
                            "return [last.code, last.error, last.run_file]; })()")
    assert adapted[0] != 2 and '"lm_head"' in (adapted[2] or ""), adapted
    assert page.evaluate("$('answer').className") == "fits", "adapters keep nothing in host memory"
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
    several_files(page)
    page.open(f"file://{PAGE}")
    sources_of_files(page)
    page.open(f"file://{PAGE}")
    same_answers(page)
