"""F15 and F16: values that are not finite, and bits that change in the memory of a running program."""
import json
import math
import os
import shutil
import struct

from program import checkpoints, empty, seeded

# 3 layers of 9 tensors, embedding, last norm and LM head: 30 tensors.
SETS = {"model.num_hidden_layers": 3, "model.tie_word_embeddings": "false", "train.steps": 8, "output.checkpoint_every": 1, "output.keep": 100,
        "data.order": "sequential"}


def read_tensors(path):
    """Tensors of a safetensors file by name, as bytes."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {n: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
            for n, t in header.items() if n != "__metadata__"}


def pattern_in(values, all_bytes, random):
    """A place of a tensor that can be recognised in memory: offset and length of bytes that occur once in all tensors
    of the checkpoint. None if there is no such place."""
    for size in (32, 64):
        places = list(range(0, len(values) - size + 1, 4))
        random.shuffle(places)
        for at in places[:200]:
            if all_bytes.count(values[at:at + size]) == 1:
                return at, size
    return None


SCOPES = ["weights", "moment1", "moment2"]


class PatchedRun:
    """A run whose memory is changed when step N was saved."""

    def __init__(self, c, name, sets):
        self.c, self.sets = c, dict(SETS, **sets)
        self.reference = c.reference(self.sets)
        self.folder = os.path.join(c.work, name)
        self.patch, self.log = os.path.join(c.work, name + ".patch"), os.path.join(c.work, name + ".log")

    def tensors(self, step, scope="weights"):
        return read_tensors(os.path.join(self.reference.folder, "checkpoints", f"step-{step}", scope + ".safetensors"))

    def place(self, step, scope, name, random):
        """(offset in the tensor, bytes) by which run() finds it; None if the tensor has no such place."""
        all_bytes = b"".join(v for s in SCOPES for v in self.tensors(step, s).values())
        values = self.tensors(step, scope)[name]
        found = pattern_in(values, all_bytes, random)
        return found and values[found[0]:found[0] + found[1]]

    def run(self, step, pattern, offset, value, options=()):
        with open(self.patch, "w") as f:
            f.write(f"{pattern.hex()} {offset} {value.hex()}\n")
        empty(self.folder)
        os.rmdir(self.folder)
        fault = {"KIND": "memory", "TRIGGER": f'"event":"checkpoint","step":{step},', "PATCH": self.patch,
                 "LOG": self.log}
        self.arguments = self.c.program.train(self.folder, self.sets, options=["--json", *options])
        r = self.c.program.run(self.arguments, fault)
        self.fault = fault
        with open(self.log) as f:
            first = f.readline().split()
        return r, int(first[1]) if first[:1] == ["patched"] else 0


def not_finite(c, row):
    """NaN in each tensor of the weights after each of several steps."""
    run = PatchedRun(c, "F15", {})
    names = sorted(run.tensors(1))
    row.figure("tensors", len(names))
    cases = [(n, s) for s in (1, 2, 3, 4, 5) for n in names]
    for name, step in c.sample(cases, 5, "F15"):
        pattern = run.place(step, "weights", name, seeded(c.seed, "F15", name, step))
        if not pattern:
            row.case(False, f"{name} cannot be recognised in memory after step {step}")
            continue
        r, found = run.run(step, pattern, 0, struct.pack("<f", math.nan))
        why = "" if found else "the tensor was not found in memory"
        if not why and r.code != 1:
            why = f"the run goes on: {r.summary()}"
        if not why and f"step {step + 1}" not in r.err:
            why = f"the step is not named: {r.summary()}"
        if not why and name not in r.err:
            why = f"the tensor is not named: {r.summary()}"
        if not why and checkpoints(run.folder) and max(checkpoints(run.folder)) > step:
            why = "a checkpoint of the state with NaN was written"
        row.case(not why, f"NaN in {name} after step {step}: {why}", c.program.command(run.arguments, run.fault),
                 run.folder, c.kept)
    policies(c, row, run)


def policies(c, row, run):
    """train.on_nonfinite = skip and rollback end the run without values that are not finite."""
    if not c.program.key_exists("train.on_nonfinite"):
        row.figure("policies", "not run: needs train.on_nonfinite")
        return
    for policy in ("skip", "rollback"):
        other = PatchedRun(c, "F15 " + policy, {"train.on_nonfinite": policy})
        names = sorted(other.tensors(1))
        for name in c.sample(names, 2, "F15" + policy):
            pattern = other.place(2, "weights", name, seeded(c.seed, "F15", policy, name))
            r, found = other.run(2, pattern, 0, struct.pack("<f", math.nan)) if pattern else (None, 0)
            if not found:
                row.case(False, f"{policy}: {name} was not found in memory")
                continue
            # A weight that is NaN cannot be skipped: the run says so. Rollback restores it from the checkpoint.
            ok = found and (r.code == 0 if policy == "rollback" else r.code in (0, 1))
            finite = all(math.isfinite(x) for v in read_tensors_of(other.folder) for x in v) if r.code == 0 else True
            row.case(ok and finite, f"{policy}, NaN in {name}: {r.summary()}", c.program.command(other.arguments,
                                                                                                other.fault))


def read_tensors_of(folder):
    for values in read_tensors(os.path.join(folder, "model", "model.safetensors")).values():
        yield struct.unpack(f"<{len(values) // 4}f", values)


def flipped_bits(c, row):
    """Bits of weights and moments that change between two steps."""
    if not c.program.key_exists("train.verify_every"):
        return row.not_run("needs train.verify_every")
    run = PatchedRun(c, "F16", {"train.verify_every": 1})
    silent = 0
    for i in range(c.count(4, 1000, 20000)):
        random = seeded(c.seed, "F16", i)
        step, scope = random.randrange(1, 7), random.choice(SCOPES)
        name = random.choice(sorted(run.tensors(step, scope)))
        pattern = run.place(step, scope, name, random)
        if pattern is None:
            continue
        byte, bit = random.randrange(len(pattern)), random.randrange(8)
        r, found = run.run(step, pattern, byte, bytes([pattern[byte] ^ 1 << bit]))
        noticed = r.code != 0 or "verif" in r.err.lower()
        silent += not noticed
        row.case(bool(found) and noticed, f"bit {bit} of byte {byte} of {scope} {name} after step {step}: "
                 f"{'not found in memory' if not found else r.summary()}",
                 c.program.command(run.arguments, run.fault))
        if c.out_of_time():
            break
    row.figure("flips not noticed", f"{silent:,}")
    shutil.rmtree(run.folder, ignore_errors=True)
