"""Correctness: the contracts, the golden runs, and the loss curves of lower precisions compared with f32."""
import glob
import json
import math
import os

from model import Dims
from models import MODES, PRECISIONS, run_keys, write_tokens
from program import NotMeasured
from report import coarse, mean

GOLDEN_BOUND = 1e-4     # nats, at every step of a golden run in f32
CURVE_BOUND = 0.01      # of the mean loss of the last steps
CURVE_STEPS, CURVE_LAST, CURVE_POINTS = 300, 20, 10
# Vocabularies whose row of logits, staged in shared memory, is about as large as the 48 KiB that a block has by default:
# the kernel of the loss also has static shared memory, so the limit lies below 48 KiB of logits.
VOCABULARIES = {"bf16": (24455, 24456, 24576, 24583, 24584), "fp32": (12227, 12228, 12288, 12291, 12292)}
TF32_ROUNDING = "nearest, ties to even"  # measured on an H100; what tests/support/cuda computes


def verify(c):
    """MEM-001 to MEM-EXACT-001, REF-001 and GPU-001 to GPU-008 by `trainhost verify`."""
    environment = {"TRAINHOST_VERIFY_SMALL": "1"} if c.quick else {}
    keys = (
        {
            "train.steps": 2,
            "data.seq_len": 4,
            "model.hidden_size": 16,
            "model.intermediate_size": 24,
            "model.head_dim": 8,
            "model.num_hidden_layers": 1,
            "train.micro_batch": 1,
        }
        if c.quick
        else {}
    )
    words = ["verify", "--backend=cuda", "--json", "-q", *(w for k, v in keys.items() for w in ("--set", f"{k}={v}"))]
    if c.quick:
        words += ["--only", "GPU-001,GPU-002,GPU-003"]  # the others take a hundred steps
    r = c.program.call(words, environment=environment)
    try:
        results = json.loads(r.out)["results"]
    except (ValueError, KeyError):
        raise NotMeasured("verify gave no results: " + r.reason())
    for j in results:
        status = {"held": True, "falsified": False}.get(j["status"])
        if "/" in j["id"]:  # a row that is only reported
            c.report.note("verify", j["id"], j["measured"], f"{j['status']}: {j['detail']}")
        elif status is None and c.quick:
            c.report.note("verify", j["id"], j["measured"], "skipped: " + j["detail"])
        else:  # on a device nothing may be skipped
            bound = "" if j["bound"] is None else f"{j['bound']:g}"
            c.report.judge(
                "verify", j["id"], j["measured"], status is True, bound, f"{j['status']}: {j['detail']}", always=True
            )


def golden_cases(folder: str) -> list:
    found = sorted(glob.glob(os.path.join(folder, "*", "run.toml")))
    if not found:
        raise NotMeasured(f"no golden runs in {folder}: give their folder with --golden")
    return [os.path.dirname(f) for f in found]


def golden(c):
    """Losses in f32 in each mode compared with losses that were computed in float64."""
    cases = golden_cases(c.golden)
    for case in cases[-1:] if c.quick else cases:
        with open(os.path.join(case, "expected.json")) as f:
            expected = json.load(f)["loss"]
        steps = 3 if c.quick else len(expected)
        name = os.path.basename(case)
        for mode in MODES:
            # The whole schedule must stand in the run file's length; a shorter run of a constant one is its beginning.
            keys = {"plugin.cuda.mode": mode, **({"train.steps": steps} if c.quick else {})}
            r = c.program.train(keys, run_file=os.path.join(case, "run.toml"))
            losses = r.losses()
            if r.code != 0 or len(losses) != steps:
                c.report.judge(
                    "golden", f"{name}, {mode}", None, False, f"<= {GOLDEN_BOUND:g}", r.reason(), always=True
                )
                continue
            worst = max(abs(a - b) for a, b in zip(losses, expected))
            c.report.at_most("golden", f"{name}, {mode}", worst, GOLDEN_BOUND,
                             f"{worst:.2e} nats at the worst of {steps} steps", always=True)


def curves(c):
    """The built-in run in every precision: the same text, seed and schedule."""
    steps, last = (3, 2) if c.quick else (CURVE_STEPS, CURVE_LAST)
    keys = {"train.steps": steps, "optimizer.warmup_steps": min(10, steps), "plugin.cuda.mode": "resident"}
    if c.quick:
        keys.update(
            {
                "model.hidden_size": 32,
                "model.intermediate_size": 48,
                "model.num_hidden_layers": 1,
                "data.seq_len": 8,
                "model.num_attention_heads": 2,
                "model.num_key_value_heads": 2,
                "model.head_dim": 16,
                "train.micro_batch": 1,
            }
        )
    reference = None
    for precision in PRECISIONS:
        # Once the steps are there the run has said all: its validation is not waited for.
        r = c.program.train(
            {**keys, "train.precision": precision}, enough=lambda e: sum(x.get("event") == "step" for x in e) >= steps
        )
        losses = r.losses()
        if len(losses) < steps:
            c.report.judge("curves", precision, None, False, "within 1 % of fp32", r.reason(), always=True)
            continue
        end = mean(losses[-last:])
        shown = f"{end:.4f} over the last {last}: " + " ".join(f"{x:.3f}" for x in coarse(losses, CURVE_POINTS))
        if precision == "fp32":
            reference = end
            c.report.note("curves", precision, end, shown, losses=losses)
        elif reference is None:
            c.report.note("curves", precision, end, shown + "; nothing to compare it with", losses=losses)
        else:
            off = abs(end / reference - 1)
            c.report.at_most(
                "curves", precision, off, CURVE_BOUND, f"{off:.2%} off fp32, {shown}", always=True, losses=losses
            )


def vocabulary(c):
    """Two steps with vocabularies around the default limit of shared memory: the losses begin near ln V."""
    for precision, sizes in VOCABULARIES.items():
        for v in sizes[:1] if c.quick else sizes:
            m = Dims(f"V = {v}", 64, 1, 2, 2, 64, v, 16, True)
            keys = run_keys(m, write_tokens(c.scratch, v, 1 << 12), precision, "resident", 1, 1, 2)
            r = c.program.train(keys)
            losses = r.losses()
            first = losses[0] if losses else math.inf
            near = r.code == 0 and len(losses) == 2 and abs(first - math.log(v)) < 0.1
            said = f"{first:.4f} nats, ln V = {math.log(v):.4f}" if r.code == 0 else r.reason()
            c.report.judge("vocabulary", f"{m.name}, {precision}", first if losses else None, near, "runs, near ln V", said,
                           always=True)


def tf32(c):
    """How the device rounds the operands of a TF32 product. Another way than the emulation's is no defect of the trainer,
    but then the emulation's TF32 figures are not those of this device."""
    found = c.probe.tf32()
    c.report.judge("tf32", "rounding of operands", None, found == TF32_ROUNDING, TF32_ROUNDING, found, always=True)
