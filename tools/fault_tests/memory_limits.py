"""F8: the least memory limit of a cgroup under which a run ends, compared with its plan."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess

from program import TINY

MIB = 1 << 20

# Sizes of models by their weights: few tokens, so that weights, gradients and moments are most of the run.
SMALL = "model.hidden_size=128 model.intermediate_size=344 model.num_attention_heads=4 model.num_key_value_heads=2 " \
        "model.head_dim=32 model.num_hidden_layers=4"
MEDIUM = "model.hidden_size=512 model.intermediate_size=1376 model.num_attention_heads=8 model.num_key_value_heads=4 " \
         "model.head_dim=64 model.num_hidden_layers=6 data.seq_len=64 train.micro_batch=2"
LARGE = "model.hidden_size=1024 model.intermediate_size=2816 model.num_attention_heads=16 " \
        "model.num_key_value_heads=8 model.head_dim=64 data.seq_len=64 train.micro_batch=2"
# Name, threads, settings. Settings that are not given are those of the tiny run, "resume=1" apart: the run continues
# from a checkpoint. Omitted fields of the model are those of the built-in model.
RUNS = [
    ("tiny", 1, ""),
    ("qwen3, sgd", 2, SMALL + " model.model_type=qwen3 optimizer.name=sgd data.seq_len=128 train.micro_batch=8"),
    ("mistral, window", 1, SMALL + " model.model_type=mistral model.sliding_window=64 data.seq_len=256 "
     "train.micro_batch=8 optimizer.name=sgd-momentum"),
    ("qwen2, tied, biases", 2, SMALL + " model.model_type=qwen2 model.tie_word_embeddings=true data.seq_len=128 "
     "train.micro_batch=16"),
    ("bf16", 1, SMALL + " train.precision=bf16 data.seq_len=256 train.micro_batch=8"),
    ("long sequence", 2, SMALL + " data.seq_len=4096 train.micro_batch=1"),
    ("short sequences, 64 MiB of text", 1, SMALL + " data.seq_len=16 train.micro_batch=128 text=64"),
    ("recompute full", 1, SMALL + " train.recompute=full data.seq_len=512 train.micro_batch=16"),
    ("recompute selective", 2, SMALL + " train.recompute=selective data.seq_len=512 train.micro_batch=16"),
    ("4 accumulated", 1, SMALL + " train.grad_accum=4 data.seq_len=256 train.micro_batch=8"),
    ("evaluation", 2, MEDIUM + " data.valid_fraction=0.01 train.eval_every=1"),
    ("resumed", 1, MEDIUM + " resume=1"),
    ("asynchronous checkpoints", 2, MEDIUM + " output.checkpoint_every=1 output.async_checkpoints=true"),
    ("verified steps", 1, MEDIUM + " train.verify_every=1"),
    ("large vocabulary", 2, MEDIUM + " model.vocab_size=32000 data.seq_len=256"),
    ("1 GiB of weights and moments", 1, LARGE + " model.num_hidden_layers=6"),
    ("resumed, bf16", 2, LARGE + " model.num_hidden_layers=8 train.precision=bf16 resume=1"),
    ("2 GiB of weights and moments", 1, LARGE + " model.num_hidden_layers=12"),
    ("2 GiB, momentum", 2, LARGE + " model.num_hidden_layers=16 optimizer.name=sgd-momentum model.model_type=qwen2"),
    ("2 GiB of activations", 2, "model.hidden_size=96 model.intermediate_size=256 model.num_attention_heads=3 "
     "model.head_dim=32 model.num_hidden_layers=16 data.seq_len=256 train.micro_batch=100"),
]


def limit_above_plan(threads, predicted):
    """Bytes that a memory limit has to leave beyond the plan (docs/memory-model.md, "Memory limits")."""
    return 16 * MIB + 4 * MIB * threads + predicted // 512


def cgroup(c):
    """A cgroup by tools/budget_check, which has no ending and is loaded as a module; None where none can be made."""
    path = os.path.join(c.root, "tools", "budget_check")
    loader = importlib.machinery.SourceFileLoader("budget_check", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("budget_check", loader))
    loader.exec_module(module)
    try:
        return module.Cgroup(c.cgroup), ""
    except module.Skip as e:
        return None, f"{e}; run as root, or give --cgroup"


class Run:
    """One configuration: its plan, and whether it ends under a limit."""

    def __init__(self, c, group, threads, words):
        self.c, self.group, self.folder = c, group, os.path.join(c.work, "F8")
        own = dict(word.split("=", 1) for word in words.split())
        self.resumed = own.pop("resume", "") != ""
        text = pathlib.Path(c.work) / "F8 text.txt"
        text.write_text("a quick brown fox jumps over the lazy dog. " * (int(own.pop("text", 1)) * MIB // 43))
        values = {**TINY, "output.checkpoint_every": 0, "train.steps": 2}
        values.update(own, **{"train.threads": threads, "data.train": text, "output.dir": self.folder})
        self.values = values
        plan = c.program.run(["plan", "--json", "--backend=cpu", *self.sets()])
        self.predicted = json.loads(plan.out)["estimates"][0]["total_bytes"]
        if self.resumed:
            self.prepare()

    def sets(self, **more):
        return [w for k, v in {**self.values, **more}.items() for w in ("--set", f"{k}={v}")]

    def prepare(self):
        """A checkpoint after the first step, kept beside the folder of the run."""
        self.remove()
        first = self.c.program.run(["train", "--backend=cpu", "-q", *self.sets(
            **{"output.checkpoint_every": 1, "train.steps": 1})], timeout=600)
        if first.code != 0:
            raise RuntimeError(f"the run that writes the checkpoint failed: {first.summary()}")
        os.rename(self.folder, self.folder + " start")

    def remove(self, start=True):
        shutil.rmtree(self.folder, ignore_errors=True)
        if start:
            shutil.rmtree(self.folder + " start", ignore_errors=True)

    def survives(self, limit):
        """Whether the run ends under `limit` bytes. Exit 3: the program itself saw that the limit is too low."""
        self.group.limit(limit)
        self.remove(start=False)
        if self.resumed:
            shutil.copytree(self.folder + " start", self.folder)
        try:
            code, _, error = self.group.run([self.c.program.path, "train", "--backend=cpu", "-q", *self.sets(),
                                             *(["--resume"] if self.resumed else [])], timeout=300)
        except subprocess.TimeoutExpired:
            return False  # a limit so low that the program's own code is read from disk again and again
        if code not in (0, 3, -signal.SIGKILL):
            raise RuntimeError(f"exit {code}: {error.strip()[-300:]}")
        return code == 0

    def least_limit(self, high):
        """Bisects between the plan and `high`, which is known to be enough; within 1/400 of the plan or 1 MiB."""
        low = int(0.98 * self.predicted)
        while high - low > max(MIB, self.predicted // 400):
            middle = (low + high) // 2
            if self.survives(middle):
                high = middle
            else:
                low = middle
        return high


def least_limit(c, row):
    """Each configuration has to end under plan and bound, and, from 1 GiB on, within 2 % of the plan."""
    group, reason = cgroup(c)
    if not group:
        return row.not_run(reason)
    found = c.details.setdefault("F8", [])
    try:
        for name, threads, words in RUNS[:c.count(1, len(RUNS), len(RUNS))]:
            run = Run(c, group, threads, words)
            bound = limit_above_plan(threads, run.predicted)
            enough = run.survives(run.predicted + bound)
            row.case(enough, f"{name}: killed under {(run.predicted + bound) / MIB:.1f} MiB, the plan of "
                     f"{run.predicted / MIB:.1f} MiB and the bound of {bound / MIB:.1f} MiB", c.repeat(row.number))
            if enough and c.tier:
                least = run.least_limit(run.predicted + bound)
                found.append({"name": name, "threads": threads, "predicted_bytes": run.predicted,
                              "bound_bytes": bound, "least_limit_bytes": least})
                row.case(run.predicted < 1 << 30 or least <= 1.02 * run.predicted,
                         f"{name}: the least limit of {least / MIB:.1f} MiB is more than 2 % above the plan of "
                         f"{run.predicted / MIB:.1f} MiB", c.repeat(row.number))
                print(f"F8: {name:32} {threads}  plan {run.predicted / MIB:7.1f} MiB, least limit "
                      f"{(least - run.predicted) / MIB:+5.1f} MiB, bound {bound / MIB:+5.1f} MiB", flush=True)
            run.remove()
            if c.out_of_time():
                break
    finally:
        group.remove()
    if found:
        over = [(f["least_limit_bytes"] - f["predicted_bytes"]) / MIB for f in found]
        row.figure("least limit above the plan, MiB", f"{min(over):.1f} to {max(over):.1f}")
        row.figure("plans, MiB", f"{min(f['predicted_bytes'] for f in found) / MIB:.1f} to "
                   f"{max(f['predicted_bytes'] for f in found) / MIB:.0f}")
