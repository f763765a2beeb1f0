"""trainhost compared with PyTorch on the same GPU, each at its best micro-batch: torch.compile, SDPA, fused AdamW
(tools/bench/torch_step.py). Blocks are compiled, not the whole model, which takes minutes."""
import contextlib
import json
import os
import select
import subprocess
import time

import speed
from models import run_keys, write_tokens
from program import NotMeasured, OutOfTime, stop
from report import mib

RATIO = 1.10
STEP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench", "torch_step.py")
# The likely best first: each costs a compilation, and the time may not reach for all of them.
MICRO_BATCHES = {"350M": (16, 32, 8), "1.1B": (8, 16, 4)}


def torch_version(python: str) -> str:
    code = "import torch; print(torch.__version__ if torch.cuda.is_available() else 'no device')"
    r = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
    if r.returncode != 0:
        raise NotMeasured(f"{python} has no torch: " + (r.stderr.strip().splitlines() or ["?"])[-1])
    if r.stdout.strip() == "no device":
        raise NotMeasured(f"the torch of {python} finds no CUDA device")
    return r.stdout.strip()


def torch_runs(c, m, precision, seconds: float) -> list:
    """Runs one process per model, which prints a line for each micro-batch; lines printed before a failure count."""
    asked = {
        "hidden": m.hidden,
        "layers": m.layers,
        "heads": m.heads,
        "kv_heads": m.kv_heads,
        "intermediate": m.intermediate,
        "vocab": m.vocab,
        "seq": m.seq,
        "tied": m.tied,
        "batches": MICRO_BATCHES[m.name],
        "threads": os.cpu_count() or 1,
        "precision": precision,
        "compile": "blocks",
        "steps": 20,
        "least": 5,
        "seconds": 3,
        "optimizer": "fused",
        "device": "cuda",
    }
    cache = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(c.scratch, "inductor")}
    process = subprocess.Popen([c.python, STEP, json.dumps(asked)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, **cache})
    until, out = time.monotonic() + seconds, b""
    os.set_blocking(process.stderr.fileno(), False)  # what it warns about may be more than a pipe holds: read along
    said = b""
    try:
        while True:
            wait = until - time.monotonic()
            if wait <= 0:
                break
            ready = select.select([process.stdout, process.stderr], [], [], wait)[0]
            if process.stderr in ready:
                said = (said + (process.stderr.read() or b""))[-4000:]
                if process.stdout not in ready and process.poll() is None:
                    time.sleep(0.05)
            if process.stdout in ready:
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                out += piece
    finally:
        stop(process)
        process.stdout.close(), process.stderr.close()
    found = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    if not any("step_ms" in f for f in found):
        last = (said.decode("utf-8", "replace").strip().splitlines() or ["it took too long"])[-1]
        raise NotMeasured("torch gave nothing: " + "; ".join(f.get("error", "") for f in found) + last[:200])
    return found


def planned_bytes(c, m, precision, micro):
    keys = run_keys(m, write_tokens(c.scratch, m.vocab, c.token_count), precision, "resident", micro, 1, 2)
    tiers = c.program.plan(keys).get("estimates", [{}])[0].get("tiers", [])
    return next((t["total_bytes"] for t in tiers if t["tier"] == "device"), None)


def compare(c, m, precision):
    what = f"{m.name}, {precision}"
    ours, micro = speed.search(c, m, precision)
    found = torch_runs(c, m, precision, c.left() - 15)
    best = max(
        (f for f in found if "step_ms" in f), key=lambda f: f["tokens"] / sorted(f["step_ms"])[len(f["step_ms"]) // 2]
    )
    theirs = best["tokens"] / sorted(best["step_ms"])[len(best["step_ms"]) // 2] * 1e3
    with contextlib.suppress(OutOfTime):  # once more after torch: the card may have warmed up
        r, warm_up = speed.measure(c, m, precision, "resident", micro, 1)
        ours = max(ours, speed.rate_of(r, warm_up))
    if best["parameters"] != m.parameters:
        c.report.judge(what, "the same model", best["parameters"], False, f"= {m.parameters:,}",
                       f"torch has {best['parameters']:,} parameters", always=True)
    tried = ", ".join(f"{f['batch']}: {f['error'][:60] if 'error' in f else 'measured'}" for f in found)
    c.report.note(what, "ours", ours, f"{ours:,.0f} tokens/s at micro-batch {micro}")
    c.report.note(
        what, "torch", theirs, f"{theirs:,.0f} tokens/s at micro-batch {best['batch']} (tried {tried})", runs=found
    )
    c.report.at_least(what, "ours / torch", ours / theirs, RATIO, f"{ours / theirs:.2f}")
    mine = planned_bytes(c, m, precision, best["batch"])
    if mine is None:
        c.report.judge(what, "memory", None, False, "less than torch", "no plan of ours", always=True)
    else:
        c.report.judge(
            what,
            "memory at torch's micro-batch",
            mine / best["peak_bytes"],
            mine < best["peak_bytes"],
            "less than torch",
            f"{mib(mine)}, torch {mib(best['peak_bytes'])} ({mib(best['reserved_bytes'])} reserved)",
        )


def steps_of_peer(names: list) -> list:
    """(name, share of the time, function) of each comparison, the most important first."""
    def one(model, precision):
        def step(c):
            version = torch_version(c.python)
            if ("torch",) not in c.best:
                c.best["torch",] = version
                c.report.note("torch", "version", None, f"{version}, of {c.python}")
            compare(c, c.models[model], precision)
        return step
    return [(name, 0.25, one(*name.split("-"))) for name in names]
