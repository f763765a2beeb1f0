"""Column `ours`: the built program, on a file of random token ids."""
import array
import json
import os
import random
import shutil

from child import run_child
from rows import Row
from sample import NotMeasured, Sample

WARMUP = 2  # steps not counted


def write_tokens(row: Row, folder: str) -> str:
    """Writes raw little-endian uint16 ids, the same for every round; the program restarts at the end of the file."""
    path = os.path.join(folder, f"tokens-{row.vocab}.bin")
    if not os.path.exists(path):
        ids = array.array("H", random.Random(1).choices(range(row.vocab), k=1 << 18))
        if ids.itemsize != 2:
            raise NotMeasured("no 16-bit integers here")
        with open(path + ".part", "wb") as f:
            f.write(ids.tobytes())
        os.replace(path + ".part", path)
    return path


def settings(row: Row, precision: str, threads: int, steps: int, tokens: str, out: str) -> list:
    """Run-file keys of one run. Optimizer and initial standard deviation are those of torch_step.py."""
    return [
        "model.model_type=llama", f"model.hidden_size={row.hidden}", f"model.num_hidden_layers={row.layers}",
        f"model.num_attention_heads={row.heads}", f"model.num_key_value_heads={row.heads}",
        f"model.head_dim={row.hidden // row.heads}", f"model.intermediate_size={row.intermediate}",
        f"model.vocab_size={row.vocab}", "model.tie_word_embeddings=true", "model.initializer_range=0.02",
        f"data.train={tokens}", "data.order=sequential", f"data.seq_len={row.seq}",
        f"train.micro_batch={row.batch}", "train.grad_accum=1", f"train.steps={steps + WARMUP}",
        f"train.threads={threads}", f"train.precision={precision}", "train.backend=cpu", "train.recompute=selective",
        "optimizer.name=adamw", "optimizer.lr=1e-4", "optimizer.betas=[0.9, 0.95]", "optimizer.weight_decay=0.1",
        "optimizer.grad_clip=1.0", "optimizer.schedule=constant", "optimizer.warmup_steps=0", f"output.dir={out}",
    ]


def fma_peak(row: Row, precision: str, done: dict):
    """FLOP/s of the machine's FMA loop, from the rate and the MFU of a run in fp32. None if the run was too short to
    measure it, and of bf16, whose MFU refers to the peak of other instructions where the CPU has them."""
    if precision != "fp32" or not done.get("mfu"):
        return None
    return done["tokens_per_s"] * row.flops / row.tokens / done["mfu"]


class Ours:
    def __init__(self, program: str, work: str, precision: str, threads: int, more: list):
        self.name = f"ours {precision}" + ("" if threads > 1 else ", 1 thread")
        self.program, self.work, self.precision, self.threads, self.more = program, work, precision, threads, more

    def measure(self, row: Row, round_: int, steps: int) -> Sample:
        if not os.access(self.program, os.X_OK):
            raise NotMeasured("not built")
        out = os.path.join(self.work, f"out-{os.getpid()}")
        arguments = [self.program, "train", "--json", "-q", "--no-fallback"]
        for s in settings(row, self.precision, self.threads, steps, write_tokens(row, self.work), out) + self.more:
            arguments += ["--set", s]
        shutil.rmtree(out, ignore_errors=True)
        r = run_child(arguments, {})
        shutil.rmtree(out, ignore_errors=True)  # at once, because writing it to disk would disturb the next column
        if r.code == 2 and self.precision != "fp32":
            raise NotMeasured("n/a")
        if r.code != 0:
            raise NotMeasured("failed: " + r.reason())
        events = [json.loads(line) for line in r.out.splitlines()]
        start, done = events[0], events[-1]
        steps_taken = [e for e in events if e["event"] == "step"]
        return Sample(
            row.name,
            self.name,
            round_,
            steps_taken[0]["tokens"],
            [e["ms"] for e in steps_taken[WARMUP:]],
            r.peak_bytes,
            start["plan"]["model"]["parameters"]["total"],
            arguments,
            {},
            steps_taken[0]["loss"],
            {"backend": start["backend"], "fma_peak": fma_peak(row, self.precision, done), "memory": {k: v for k, v in done["memory"].items() if k != "tiers"}},
        )
