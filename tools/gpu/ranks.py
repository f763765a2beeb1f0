"""Several ranks: NCCL with one rank on any machine; on a machine with several GPUs, data- and tensor-parallel runs under
mpirun compared with one GPU. With one GPU two ranks have to be refused."""
import os
import shutil

from models import write_tokens
from program import NotMeasured

BOUND = 1e-4  # nats, at every step
BOUND_BF16 = 3e-2  # likewise; tensor-parallel ranks round the parts of a sum before they add them


def keys(c, zero: int, ranks: int) -> dict:
    """The same number of sequences per step, whatever the number of ranks."""
    hidden, layers, steps, sequences = (16, 1, 2, 4) if c.quick else (512, 6, 20, 24)
    shape = {"model.hidden_size": hidden, "model.intermediate_size": 2 * hidden, "model.num_hidden_layers": layers,
             "model.num_attention_heads": 2, "model.num_key_value_heads": 1, "model.head_dim": hidden // 2}
    if c.quick:  # without the validation of the built-in text, which takes most of the time of two steps
        shape |= {"data.train": write_tokens(c.scratch, 256, 1 << 10), "model.vocab_size": 256}
    return {**shape, "train.precision": "fp32", "data.seq_len": 16 if c.quick else 256, "train.micro_batch": 1,
            "train.global_batch": sequences, "train.steps": steps, "train.eval_every": 0, "optimizer.warmup_steps": 1,
            "parallel.timeout": 30, **({"parallel.zero": zero} if ranks > 1 else {})}


def under_mpirun(ranks: int) -> list:
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "-n", str(ranks)]


def ranks(c):
    answer = c.probe.nccl()
    c.report.judge("ranks", "NCCL, one rank", None, answer["right"] is True, "own elements", answer["version"], always=True)
    if not shutil.which("mpirun"):
        c.report.note("ranks", "two ranks", None, "not measured: there is no mpirun")
        return
    run = c.program.train(keys(c, 0, 2), before=under_mpirun(2))
    if run.code == 2 and "use one GPU" in run.err:
        c.report.judge("ranks", "two ranks on one GPU", None, True, "refused", run.reason(), always=True)
        return
    if run.code != 0:
        c.report.judge("ranks", "two ranks", None, False, f"<= {BOUND:g}", run.reason(), always=True)
        return
    expected = c.program.train(keys(c, 0, 1)).losses()
    for zero in range(4):
        compare(c, "ranks", f"two ranks, ZeRO {zero}", keys(c, zero, 2), 2, expected, first=None if zero else run)


def compare(c, step: str, what: str, run: dict, ranks: int, expected: list, bound: float = BOUND, first=None):
    """Two runs on several ranks: losses near those that are expected, the same bits, memory as planned. first: the first
    of them, if it has been run already."""
    first, second = first or c.program.train(run, before=under_mpirun(ranks)), c.program.train(run, before=under_mpirun(ranks))
    losses, wrong = first.losses(), [t for t, v in first.tiers().items() if v[0] != v[1]]
    worst = max((abs(a - b) for a, b in zip(losses, expected)), default=float("inf"))
    holds = (first.code == 0 and len(losses) == len(expected) and worst <= bound and not wrong
             and losses == second.losses())
    text = first.reason() if first.code else f"{worst:.2e} nats at the worst of {len(losses)} steps"
    c.report.judge(step, what, worst, holds, f"<= {bound:g}, same bits, planned = taken", text, always=True)


def tensor_keys(c, precision: str, ranks: int, more: dict) -> dict:
    """As keys(), of a model that two tensor-parallel ranks divide."""
    shape = {"model.num_key_value_heads": 2, "model.vocab_size": 512, "train.precision": precision}
    return {**keys(c, 0, 1), **shape, **({"parallel.tensor": 2, **more} if ranks > 1 else {})}


def tensor(c):
    """Tensor-parallel ranks, each with a part of every matrix; with four GPUs two data-parallel pairs of them."""
    if not shutil.which("mpirun"):
        raise NotMeasured("there is no mpirun")
    pair = c.program.train(tensor_keys(c, "fp32", 2, {}), before=under_mpirun(2))
    if pair.code == 2 and "use one GPU" in pair.err:
        raise NotMeasured("tensor-parallel ranks need two GPUs, this machine has one")
    expected = {p: c.program.train(tensor_keys(c, p, 1, {})).losses() for p in ("fp32", "bf16")}
    for precision, bound in (("fp32", BOUND), ("bf16", BOUND_BF16)):
        for name, more in (("", {}), (", sequence parallelism", {"parallel.sequence": "true"})):
            compare(c, "tensor", f"two ranks, {precision}{name}", tensor_keys(c, precision, 2, more), 2,
                    expected[precision], bound, first=None if more or precision != "fp32" else pair)
    for name, more in (("DoRA", {"lora.rank": 4, "lora.dora": "true"}), ("Muon", {"optimizer.name": "muon"})):
        one = c.program.train({**tensor_keys(c, "fp32", 1, {}), **more}).losses()
        compare(c, "tensor", f"two ranks, {name}", tensor_keys(c, "fp32", 2, more), 2, one)
    four = tensor_keys(c, "fp32", 4, {"parallel.zero": 3})
    run = c.program.train(four, before=under_mpirun(4))
    if "use one GPU" in run.err:
        c.report.note("tensor", "2 x 2 ranks, ZeRO 3", None, "not measured: this machine has fewer than four GPUs")
    else:
        compare(c, "tensor", "2 x 2 ranks, ZeRO 3", four, 4, expected["fp32"], first=run)
