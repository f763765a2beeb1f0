"""Several ranks: NCCL with one rank on any machine; on a machine with several GPUs, runs under mpirun compared with one
GPU. With one GPU two ranks have to be refused."""
import os
import shutil

BOUND = 1e-4  # nats, at every step


def keys(c, zero: int, ranks: int) -> dict:
    """The same 24 sequences per step, whatever the number of ranks."""
    hidden, layers, steps = (16, 2, 2) if c.quick else (512, 6, 20)
    shape = {"model.hidden_size": hidden, "model.intermediate_size": 2 * hidden, "model.num_hidden_layers": layers,
             "model.num_attention_heads": 2, "model.num_key_value_heads": 1, "model.head_dim": hidden // 2}
    return {**shape, "train.precision": "fp32", "data.seq_len": 16 if c.quick else 256, "train.micro_batch": 1,
            "train.global_batch": 24, "train.steps": steps, "train.eval_every": 0, "optimizer.warmup_steps": 1,
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
        first, second = (c.program.train(keys(c, zero, 2), before=under_mpirun(2)) for _ in range(2))
        losses, wrong = first.losses(), [t for t, v in first.tiers().items() if v[0] != v[1]]
        worst = max((abs(a - b) for a, b in zip(losses, expected)), default=float("inf"))
        holds = (first.code == 0 and len(losses) == len(expected) and worst <= BOUND and not wrong
                 and losses == second.losses())
        text = first.reason() if first.code else f"{worst:.2e} nats at the worst of {len(losses)} steps"
        c.report.judge("ranks", f"two ranks, ZeRO {zero}", worst, holds, f"<= {BOUND:g}, same bits, planned = taken",
                       text, always=True)
