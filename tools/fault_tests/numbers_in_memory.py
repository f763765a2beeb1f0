"""F15 and F16: values that are not finite, and bits that change in the memory of a running program."""
import json
import math
import os
import struct

from program import checkpoints, empty, finish_run, seeded

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
    for name, step in c.sample(cases, 3, "F15"):
        pattern = run.place(step, "weights", name, seeded(c.seed, "F15", name, step))
        if not pattern:
            row.case(False, f"{name} cannot be recognised in memory after step {step}")
            continue
        r, found = run.run(step, pattern, 0, struct.pack("<f", math.nan))
        why = "" if found else "the tensor was not found in memory"
        if not why and r.code != 1:
            why = f"the run goes on: {r.summary()}"
        if not why and f"step {step + 1}" not in r.err and f"step-{step + 1}" not in r.err:
            why = f"the step is not named: {r.summary()}"
        if not why and name not in r.err:
            why = f"the tensor is not named: {r.summary()}"
        if not why and checkpoints(run.folder) and max(checkpoints(run.folder)) > step:
            why = "a checkpoint of the state with NaN was written"
        row.case(not why, f"NaN in {name} after step {step}: {why}", c.program.command(run.arguments, run.fault),
                 run.folder, c.kept)
    in_products(c, row)
    policies(c, row, run)


def in_products(c, row):
    """NaN in the result of a matrix product: of an activation, of a gradient. No weight may change by it."""
    folder = os.path.join(c.work, "F15")
    base = c.reference(LARGE)
    count = product_count(c, folder, LARGE)
    measured = 0
    for i in range(c.count(1, 150, 1000)):
        random = seeded(c.seed, "F15 product", i)
        fault = dict(PRODUCTS, CALL=random.randrange(1, count + 1), ELEMENT=random.randrange(1 << 20))
        arguments = c.program.train(fresh(folder), LARGE)
        r = c.program.run(arguments, fault)
        why = "" if r.code in (0, 1) and (r.code == 0 or "step " in r.err) else f"unexpected: {r.summary()}"
        # Some products measure the rate of the machine; a NaN there changes nothing.
        measured += r.code == 0
        if r.code == 0:
            why = base.difference(folder)
        elif not why and "computed again, all values are finite" not in r.err:
            why = f"that the values of a second computation are finite is not said: {r.summary()}"
        elif not why:
            again, _ = finish_run(c.program, folder, LARGE)
            why = again.summary() if again.code else base.difference(folder)
        row.case(not why, f"NaN in product {fault['CALL']} of {count}: {why}", c.program.command(arguments, fault),
                 folder, c.kept)
    row.figure("NaN in products of steps", c.count(1, 150, 1000) - measured)


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


# Weights that are large enough for OpenBLAS, which computes their products; small ones use kernels of the trainer.
LARGE = {"model.hidden_size": 640, "model.intermediate_size": 640, "model.num_attention_heads": 10,
         "model.num_key_value_heads": 10, "model.head_dim": 64, "model.num_hidden_layers": 1, "train.steps": 4,
         "output.checkpoint_every": 2, "data.order": "sequential"}
PRODUCTS = {"KIND": "product", "TRIGGER": '"event":"start"'}  # not those that measure the rate before


def product_count(c, folder, sets):
    """Matrix products of the steps of a run."""
    log = os.path.join(c.work, "products.log")
    fresh(folder)
    r = c.program.run(c.program.train(folder, sets), dict(PRODUCTS, LOG=log))
    if r.code != 0:
        raise RuntimeError(f"the run that counts products fails: {r.summary()}")
    with open(log) as f:
        return int(f.read())


def fresh(folder):
    empty(folder)
    os.rmdir(folder)
    return folder


def flipped_bits(c, row):
    """One bit of the result of one matrix product flips, in one of the two computations of a step. Flips of the sign
    and of the exponent must be found; those of the fraction may disappear when the result is rounded."""
    if not c.program.key_exists("train.verify_every"):
        return row.not_run("needs train.verify_every")
    sets = dict(LARGE, **{"train.verify_every": 1})
    folder = os.path.join(c.work, "F16")
    base = c.reference(sets)
    count = product_count(c, folder, sets)
    row.figure("products of the run", f"{count:,}")
    rounded = silent = 0
    for i in range(c.count(3, 1450, 20000)):
        random = seeded(c.seed, "F16", i)
        bit = random.randrange(23, 32) if i % 4 else random.randrange(23)
        fault = dict(PRODUCTS, CALL=random.randrange(1, count + 1), ELEMENT=random.randrange(1 << 20), BIT=bit)
        arguments = c.program.train(fresh(folder), sets)
        r = c.program.run(arguments, fault)
        same = r.code == 0 and not base.difference(folder)
        found = r.code == 1 and ("computed twice" in r.err or "not finite" in r.err or "nan" in r.err or "inf" in r.err)
        rounded += same
        silent += r.code == 0 and not same
        row.case(found or same, f"bit {bit} of product {fault['CALL']}: {r.summary()}",
                 c.program.command(arguments, fault), folder, c.kept)
        if c.out_of_time():
            break
    row.figure("found", f"{row.cases - rounded - len(row.failures):,}")
    row.figure("without effect on the model", f"{rounded:,}")
    row.figure("wrong model without a message", f"{silent:,}")
