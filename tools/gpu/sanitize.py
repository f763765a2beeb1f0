"""compute-sanitizer over golden runs: no access out of bounds, no race in shared memory. Skipped by name if the tool is
missing or reports that it cannot work on this device; no other failure is skipped."""

import glob
import os
import shutil

import variants
from contracts import golden_cases
from model import Dims
from models import MODES, run_keys, write_tokens
from program import NotMeasured

FOUND = 86          # the exit code that the tool is told to give for its own findings
# The tool's own words for what it cannot do here.
REFUSALS = (
    "is not supported",
    "not supported on",
    "No attachable process",
    "Unable to find injection library",
    "Device not supported",
    "debugger API",
    "ERR_NVGPUCTRPERM",
    "Failed to initialize",
    "Internal Sanitizer Error",
)


def find_tool(given: str) -> str:
    installed = [f"/usr/local/cuda*/{folder}/compute-sanitizer" for folder in ("bin", "compute-sanitizer")]
    places = [given] if given else [shutil.which("compute-sanitizer") or "",
                                    *(p for pattern in installed for p in sorted(glob.glob(pattern), reverse=True))]
    found = next((p for p in places if p and os.access(p, os.X_OK)), "")
    if not found:
        raise NotMeasured("no compute-sanitizer here: it is part of the CUDA toolkit; --sanitizer names it")
    return found


def refusal(text: str) -> str:
    """The line in which the tool reports that it cannot work here; "" if there is none."""
    return next((l.strip("= \t") for l in text.splitlines()
                 if l.startswith("=========") and any(r in l for r in REFUSALS)), "")


def findings(text: str) -> str:
    """The first finding of the tool and its own count of findings."""
    lines = [l.strip("= \t") for l in text.splitlines() if l.startswith("=========")]
    worth = [l for l in lines if l and not l.startswith(("COMPUTE-SANITIZER", "Host Frame", "Saved host"))]
    return "; ".join(([worth[0]] if worth else []) + [l for l in worth[-1:] if "SUMMARY" in l and len(worth) > 1])


def before_program(c, tool: str) -> list:
    """The words that run the program under the tool."""
    words = [find_tool(c.sanitizer), "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    return words + (["--racecheck-report", "all"] if tool == "racecheck" else [])


def judge(c, step: str, what: str, r, steps: int):
    """One run under a tool is clean if it took its steps and the tool found nothing. Raises NotMeasured if the tool
    refuses this device."""
    text = r.out + r.err
    refused = refusal(text)
    if refused:
        raise NotMeasured(f"{step} refuses: {refused}")
    clean = r.code == 0 and len(r.losses()) == steps
    said = f"clean in {r.seconds:.0f} s" if clean else findings(text) or r.reason()
    c.report.judge(step, what, r.code, clean, "clean", said, always=True)


def tensor_cores(c):
    """racecheck over one update of a small model whose heads and precision use the tensor-core kernels."""
    before = before_program(c, "racecheck")
    m = Dims("one layer", 128, 1, 2, 1, 128, 256, 64 if c.quick else 192, True)
    for precision in ("bf16",) if c.quick else ("bf16", "tf32"):
        keys = run_keys(m, write_tokens(c.scratch, m.vocab, 1 << 14), precision, "resident", 1, 1, 1)
        judge(c, "racecheck", f"tensor-core kernels, {precision}", c.program.train(keys, before=before), 1)


def with_tool(tool: str):
    """The step for memcheck or racecheck: two updates of each golden run in each mode, the kernels of the other
    precisions, and those of optimizers and adapters."""
    def step(c):
        before = before_program(c, tool)
        cases = {os.path.basename(f): f for f in golden_cases(c.golden)}
        small = [n for n in ("mha", "gqa-tied") if n in cases] or list(cases)[:1]
        runs = [(n, mode, "fp32") for n in small for mode in MODES] + [
            (small[-1], "resident", p) for p in ("bf16", "tf32")
        ]
        runs += [(n, "resident", "fp32") for n in cases if n not in small]
        for name, mode, precision in runs[:1] if c.quick else runs:
            what = f"{name}, {mode}, {precision}"
            r = c.program.train(
                {"plugin.cuda.mode": mode, "train.precision": precision, "train.steps": 2, "optimizer.warmup_steps": 0},
                run_file=os.path.join(cases[name], "run.toml"),
                before=before,
            )
            judge(c, tool, what, r, 2)
        runs = variants.kernel_runs(c, 2)
        for what, keys in runs[2:3] if c.quick else runs:
            judge(c, tool, what, c.program.train(keys, run_file=variants.run_file(c), before=before), 2)
    return step
