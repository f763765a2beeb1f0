"""F6, F12, F14 and F27: flipped bits, truncated files, wrong token files, hostile names."""
import os
import shutil
import struct

from program import checkpoints, empty, seeded


def flip(path, bit):
    with open(path, "r+b") as f:
        f.seek(bit // 8)
        byte = f.read(1)[0]
        f.seek(bit // 8)
        f.write(bytes([byte ^ 1 << bit % 8]))


def interrupted_run(c, folder, sets=None):
    """A run with two checkpoints, of step 2 and of step 4, and without a model."""
    empty(folder)
    os.rmdir(folder)
    r = c.program.run(c.program.train(folder, sets), {"TRIGGER": '"event":"checkpoint","step":4', "SIGNALS": "9"})
    if checkpoints(folder) != [2, 4]:
        raise RuntimeError(f"cannot prepare an interrupted run: {r.summary()}")


def bit_rot(c, row):
    """One bit of a checkpoint, of the data, or of a cache is flipped; then the run is resumed."""
    base = c.reference()
    source, folder = os.path.join(c.work, "F6 source"), os.path.join(c.work, "F6")
    interrupted_run(c, source)
    newest = os.path.join(source, "checkpoints", "step-4")
    # The bits of the four files of a checkpoint, so that each bit has the same chance.
    bits = [(n, 8 * os.path.getsize(os.path.join(newest, n))) for n in sorted(os.listdir(newest))]
    total = sum(b for _, b in bits)
    wanted = c.count(8, 2000, 50000)
    for i in range(wanted):
        at = seeded(c.seed, "F6", i).randrange(total)
        for name, size in bits:
            if at < size:
                break
            at -= size
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        flip(os.path.join(folder, "checkpoints", "step-4", name), at)
        arguments = c.program.train(folder, options=["--json"]) + ["--resume"]
        r = c.program.run(arguments)
        why = r.summary() if r.code != 0 else base.difference(folder)
        if not why and "skipped step-4" not in r.err:
            why = "the damage was not reported"
        row.case(not why, f"bit {at} of {name}: {why}", c.program.command(arguments), folder, c.kept)
        if c.out_of_time():
            break
    row.figure("flips in a checkpoint", f"{row.cases:,}")
    data_rot(c, row, source, folder)
    cache_rot(c, row, base, folder)


def data_rot(c, row, source, folder):
    """A flipped bit of the text between two starts: the resumed run must refuse it."""
    original, n = open(c.program.text, "rb").read(), 0
    try:
        for i in range(c.count(3, 300, 3000)):
            bit = seeded(c.seed, "F6 data", i).randrange(8 * len(original))
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder)
            flip(c.program.text, bit)
            arguments = c.program.train(folder) + ["--resume"]
            r = c.program.run(arguments)
            row.case(r.code == 2 and "content" in r.err, f"bit {bit} of the text: {r.summary()}")
            n += 1
            with open(c.program.text, "wb") as f:
                f.write(original)
    finally:
        with open(c.program.text, "wb") as f:
            f.write(original)
    row.figure("flips in data", f"{n:,}")


def cache_rot(c, row, base, folder):
    """Flipped bits of the registry's cache, and of the hashes and the token cache of the run: no result changes."""
    n = 0
    caches = [os.path.join(d, f) for d, _, files in os.walk(os.path.join(c.work, "cache")) for f in files]
    for path in caches:
        original = open(path, "rb").read()
        for i in range(c.count(3, 300, 3000) if original else 0):
            flip(path, seeded(c.seed, "F6 cache", path, i).randrange(8 * len(original)))
            empty(folder)
            os.rmdir(folder)
            r = c.program.run(c.program.train(folder))
            row.case(r.code == 0 and not base.difference(folder), f"flipped bit of {path}: {r.summary()}")
            n += 1
            with open(path, "wb") as f:
                f.write(original)
    row.figure("flips in caches", f"{n:,}")


def lengths(size, c, name):
    """Every length at tier 1 and above; a sample at tier 0."""
    return c.sample(list(range(size)), 3, "F12" + name)


def truncation(c, row):
    """Every file that a run reads, cut to every length."""
    folder, files = os.path.join(c.work, "F12"), os.path.join(c.work, "F12 files")
    empty(files)
    ids = os.path.join(files, "ids.bin")
    with open(ids, "wb") as f:
        f.write(struct.pack("<200H", *(i * 7 % 16 for i in range(200))))
    small = {"model.vocab_size": 16, "model.hidden_size": 8, "model.num_hidden_layers": 1,
             "model.num_attention_heads": 1, "model.head_dim": 8, "model.intermediate_size": 8, "data.train": ids,
             "train.steps": 2, "output.checkpoint_every": 1}
    made = os.path.join(files, "run")
    r = c.program.run(c.program.train(made, small))
    if r.code != 0:
        raise RuntimeError(f"the run that writes the files fails: {r.summary()}")
    weights = os.path.join(made, "model", "model.safetensors")
    config = os.path.join(made, "model", "config.json")

    def each(path, label, sets, options=(), allowed=(2,), must_name=True):
        original = open(path, "rb").read()
        try:
            for n in lengths(len(original), c, label):
                with open(path, "wb") as f:
                    f.write(original[:n])
                empty(folder)
                os.rmdir(folder)
                arguments = c.program.train(folder, dict(small, **sets)) + list(options)
                r = c.program.run(arguments)
                named = r.code == 0 or not must_name or os.path.basename(path) in r.err
                row.case(r.code in allowed and named, f"{label} of {n} bytes: {r.summary()}",
                         c.program.command(arguments))
                if c.out_of_time():
                    break
        finally:
            with open(path, "wb") as f:
                f.write(original)
        row.figure(label, f"{len(original):,} bytes")

    each(weights, "model.safetensors", {"model.weights": weights, "data.tokenizer": "bytes"})
    # A shorter token file is a smaller data set, unless a token is cut or no sample remains.
    each(ids, "token file", {}, allowed=(0, 2))
    each_config(c, row, config, folder, ids)
    each_manifest(c, row, made, small)


def each_config(c, row, path, folder, ids):
    original = open(path, "rb").read()
    whole = original.rstrip()  # without the end of line the file is complete
    try:
        for n in lengths(len(whole), c, "config.json"):
            with open(path, "wb") as f:
                f.write(original[:n])
            r = c.program.run(["plan", "--model", path, "-q"])
            row.case(r.code == 2 and "config.json" in r.err, f"config.json of {n} bytes: {r.summary()}")
    finally:
        with open(path, "wb") as f:
            f.write(original)
    row.figure("config.json", f"{len(whole):,} bytes")


def each_manifest(c, row, made, small):
    """The newest checkpoint's files: the run resumes from the one before."""
    newest = os.path.join(made, "checkpoints", "step-2")
    for name in sorted(os.listdir(newest)):
        path = os.path.join(newest, name)
        original = open(path, "rb").read()
        # Each file of tensors has the same header and rules: all lengths of one of them, and of the manifest.
        some = lengths(len(original), c, name) if name in ("manifest.json", "weights.safetensors") else \
            c.sample_of(list(range(len(original))), c.count(2, 50, 500), name)
        for n in some:
            with open(path, "wb") as f:
                f.write(original[:n])
            r = c.program.run(c.program.train(made, small, options=["--json"]) + ["--resume"])
            row.case(r.code == 0 and "skipped step-2" in r.err, f"{name} of {n} bytes: {r.summary()}")
            for extra in os.listdir(os.path.join(made, "checkpoints")):
                if extra not in ("step-1", "step-2", "latest"):
                    shutil.rmtree(os.path.join(made, "checkpoints", extra), ignore_errors=True)
            if not os.path.exists(path):
                raise RuntimeError(f"the run removed {path}")
            with open(path, "wb") as f:
                f.write(original)
            if c.out_of_time():
                break
        row.figure(f"checkpoint {name}", f"{len(original):,} bytes")


def token_files(c, row):
    """Token files with ids outside the vocabulary, without tokens, of odd length, shorter than a sample."""
    folder, path = os.path.join(c.work, "F14"), os.path.join(c.work, "F14 tokens.bin")
    for i in range(c.count(6, 200, 2000)):
        random = seeded(c.seed, "F14", i)
        wide, kind = random.random() < 0.5, random.choice(["id", "empty", "one", "short", "odd"])
        count = {"empty": 0, "one": 1, "short": 8}.get(kind, 400)
        ids = [random.randrange(256) for _ in range(count)]
        at = random.randrange(400)
        if kind == "id":
            ids[at] = random.choice([256, 257, 40000, 65535] + ([1 << 31, (1 << 32) - 1] if wide else []))
        data = struct.pack(f"<{count}{'I' if wide else 'H'}", *ids)
        if kind == "odd":
            data += b"x"
        with open(path, "wb") as f:
            f.write(data)
        empty(folder)
        os.rmdir(folder)
        # Every token is read: 49 samples of 8 tokens, one per step, in order.
        sets = {"data.train": path, "data.dtype": "uint32" if wide else "uint16", "data.order": "sequential",
                "train.steps": 49}
        arguments = c.program.train(folder, sets)
        r = c.program.run(arguments)
        # The last tokens beyond 49 samples are not read.
        used = kind != "id" or at < 49 * 8 + 1
        named = os.path.basename(path) in r.err and (kind != "id" or str(ids[at]) in r.err)
        # An id that is met during the run stops it with a checkpoint of the state before.
        ok = r.code in (1, 2) and named if used else r.code in (0, 1, 2)
        row.case(ok, f"{kind}, {'u32' if wide else 'u16'}, case {i}: {r.summary()}", c.program.command(arguments))


NAMES = ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nb", "a\rb", "\u202egnirts", "../../etc/passwd", "\x00x", "\x9b1m",
         "\x7f", "%s%n", "'; rm -rf x", "\u2066x\u2069", "a" * 300, "\ud7ff", "\t"]


def hostile_names(c, row):
    """Names with control characters in arguments, keys, values, tensors and files: never printed as they are."""
    folder = os.path.join(c.work, "F27")
    empty(folder)

    def check(label, arguments):
        r = c.program.run(arguments, directory=folder)
        text = r.out + r.err
        raw = [ch for ch in text if (ord(ch) < 32 and ch not in "\n\t") or 127 <= ord(ch) < 160
               or ch in "\u202e\u2066\u2069"]
        row.case(r.code in (0, 1, 2, 3, 4) and not raw, f"{label}: raw {raw[:3]!r}, {r.summary()}",
                 c.program.command([a.replace("\x00", "") for a in arguments]))

    for i, name in enumerate(c.sample(NAMES, 2, "F27")):
        word = name.replace("\x00", "")
        for label, arguments in [("run file", ["train", word]), ("model", ["plan", f"--model={word}"]),
                                 ("device", ["plan", f"--device={word}"]), ("option", ["plan", f"--{word}"]),
                                 ("key", ["plan", "--set", f"{word}=1"]),
                                 ("value", ["plan", "--set", f"train.backend={word}"]),
                                 ("data", ["data", "info", word]), ("folder", ["generate", word, "--prompt", "x"]),
                                 ("plugin", ["plugins", "info", word]),
                                 ("plugin path", ["plugins", "list", "--plugin-path", folder + "/" + word])]:
            check(f"{label} {name!r}", arguments)
        check(f"output folder {name!r}", ["train", "-q", "--set", f"output.dir=/dev/null/{word}"])
        tensors(c, folder, name)
        check(f"tensor {name!r}", c.program.train(os.path.join(folder, "run"), {
            "model.weights": os.path.join(folder, "bad.safetensors"), "data.tokenizer": "bytes"}))
        quoted = "".join(f"\\u{ord(ch):04x}" if ord(ch) < 0x10000 else ch for ch in name)
        with open(os.path.join(folder, "keys.toml"), "w") as f:
            f.write(f'["{quoted}"]\n"{quoted}" = "{quoted}"\n')
        check(f"key of a run file {name!r}", ["plan", "keys.toml"])
        with open(os.path.join(folder, "config.json"), "w") as f:
            f.write(f'{{"model_type": "{quoted}", "{quoted}": 1, "hidden_size": "{quoted}"}}')
        check(f"config.json {name!r}", ["plan", "--model=config.json"])
        if "/" not in word and word and len(word) < 200:
            plugins = os.path.join(folder, "plugins")
            empty(plugins)
            with open(os.path.join(plugins, word + ".so"), "w") as f:
                f.write("no library")
            check(f"file name of a plugin {name!r}", ["plugins", "list", "-v", "--plugin-path", plugins])


def tensors(c, folder, name):
    """A safetensors file with one tensor of that name."""
    text = "".join(f"\\u{ord(ch):04x}" for ch in name)
    header = f'{{"{text}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}'.encode()
    with open(os.path.join(folder, "bad.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
