"""Optimizers and adapters: golden runs of torch.optim, bitsandbytes, lion-pytorch and peft in each mode, in f32."""
import json
import os

from models import MODES

BOUND = 1e-4        # nats, at every step
BOUND_8BIT = 5e-4   # codes of 8 bits amplify rounding
OPTIMIZERS = ("lion", "adafactor", "muon", "adamw-8bit")
ADAPTERS = ("lora", "lora-dropout", "qlora", "dora", "dora-dropout", "qdora")


def expected_of(c, name: str) -> dict:
    with open(os.path.join(c.golden, name, "expected.json")) as f:
        return json.load(f)


def run_file(c) -> str:
    """All runs train the model of gqa-tied on its tokens."""
    return os.path.join(c.golden, "gqa-tied", "run.toml")


def keys_of(run: dict, steps: int, mode: str) -> dict:
    """The settings that a golden run records, as keys of the run file."""
    return {
        "plugin.cuda.mode": mode,
        "train.steps": steps,
        "train.micro_batch": run["micro_batch"],
        "train.grad_accum": 1,
        "data.seq_len": run["seq_len"],
        "optimizer.lr": run["lr"],
        "optimizer.betas": json.dumps(run["betas"]),
        "optimizer.eps": run["eps"],
        "optimizer.weight_decay": run["weight_decay"],
        "optimizer.grad_clip": run["grad_clip"],
        "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0,
        "optimizer.min_lr": 0,
    }


def optimizer_keys(c, name: str, mode: str, steps: int) -> dict:
    return {**keys_of(expected_of(c, "optimizers")[name]["run"], steps, mode), "optimizer.name": name}


def adapter_keys(c, name: str, mode: str, steps: int) -> dict:
    run = expected_of(c, name)["run"]
    adapter = os.path.abspath(os.path.join(c.golden, "dora" if "dora" in name else "lora"))
    keys = {**keys_of(run, steps, mode), "model.adapter": adapter,
            "train.seed": run.get("seed", 1), "lora.dropout": run.get("lora_dropout", 0)}
    return {**keys, "lora.base": "nf4", "lora.double_quant": "true"} if name.startswith("q") else keys


def compare(c, step: str, what: str, keys: dict, expected: list, bound: float):
    """Every loss, and planned and allocated bytes of each memory tier."""
    r = c.program.train(keys, run_file=run_file(c))
    losses = r.losses()
    if r.code != 0 or len(losses) != len(expected):
        c.report.judge(step, what, None, False, f"<= {bound:g}", r.reason(), always=True)
        return
    wrong = {t: v for t, v in r.tiers().items() if v[0] != v[1]}
    if wrong:
        words = ", ".join(f"{t} {v[1] - v[0]:+,}" for t, v in wrong.items())
        c.report.judge(step, what, None, False, "planned = taken", f"taken beyond the plan: {words} bytes", always=True)
        return
    worst = max(abs(a - b) for a, b in zip(losses, expected))
    c.report.at_most(step, what, worst, bound, f"{worst:.2e} nats at the worst of {len(losses)} steps, memory as planned",
                     always=True)


def cases(c, names: tuple) -> list:
    """Every name in every mode; a third of them with --quick."""
    found = [(name, mode) for name in names for mode in MODES]
    return found[::3] if c.quick else found


def optimizers(c):
    expected = expected_of(c, "optimizers")
    for name, mode in cases(c, OPTIMIZERS):
        steps = 2 if c.quick else expected[name]["run"]["steps"]
        compare(c, "optimizers", f"{name}, {mode}", optimizer_keys(c, name, mode, steps),
                expected[name]["loss"][:steps], BOUND_8BIT if name == "adamw-8bit" else BOUND)


def adapters(c):
    """Adapters of peft, LoRA and DoRA: without dropout, with dropout, over weights in NF4."""
    for name, mode in cases(c, ADAPTERS):
        expected = expected_of(c, name)
        steps = 2 if c.quick else expected["run"]["steps"]
        compare(c, "adapters", f"{name}, {mode}", adapter_keys(c, name, mode, steps), expected["loss"][:steps], BOUND)


def kernel_runs(c, steps: int) -> list:
    """(what, keys) of runs that use every kernel of the optimizers and adapters, in f32 and bf16."""
    runs = [(f"{name}, {precision}", {**optimizer_keys(c, name, "resident", steps), "train.precision": precision})
            for name in OPTIMIZERS for precision in ("fp32", "bf16")]
    return runs + [(f"{name}, bf16", {**adapter_keys(c, name, "resident", steps), "train.precision": "bf16"})
                   for name in ADAPTERS[1:]]
