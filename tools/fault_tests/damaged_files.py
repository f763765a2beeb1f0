"""F6, F12, F14 and F27: flipped bits, truncated files, wrong token files, hostile names."""
import json
import os
import shutil
import struct
import threading

from program import checkpoints, empty, model_bytes, seeded


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


# The smallest model: its files have some thousand bytes.
SMALL = {"model.vocab_size": 16, "model.hidden_size": 8, "model.num_hidden_layers": 1, "model.num_attention_heads": 1,
         "model.head_dim": 8, "model.intermediate_size": 8, "train.steps": 2, "output.checkpoint_every": 1}


def truncation(c, row):
    """Every file that a command reads, cut to every length; --jobs of them at the same time."""
    workers, lock = [c.worker(i) for i in range(c.jobs)], threading.Lock()
    prepared = [truncated_files(w) for w in workers]
    for kind, (label, path, _) in enumerate(prepared[0]):
        size = len(read(path).rstrip()) if path.endswith((".json", ".toml")) else os.path.getsize(path)
        originals = [read(files[kind][1]) for files in prepared]

        def one_length(i, n):
            _, path, check = prepared[i][kind]
            write(path, originals[i][:n])
            why, arguments = check(cut=n < len(originals[i]))
            write(path, originals[i])
            with lock:
                row.case(not why, f"{label} of {n} bytes: {why}", workers[i].program.command(arguments))

        one_length(0, len(originals[0]))
        # One length at tier 0. Without the end of the last line a text is complete.
        c.in_parallel(c.sample(list(range(size)), 1, "F12" + label), one_length)
        row.figure(label, f"{size:,} bytes")


def truncated_files(w):
    """(kind of file, its path, function that runs a command on it and returns what is wrong and its arguments)."""
    files, folder, program = empty(os.path.join(w.work, "F12 files")), os.path.join(w.work, "F12"), w.program
    ids, tokenizer, run_file = (os.path.join(files, n) for n in ("ids.bin", "pieces.model", "run.toml"))
    write(ids, struct.pack("<200H", *(i * 7 % 16 for i in range(200))))
    write(tokenizer, small_tokenizer())
    write(run_file, b'[model]\nmodel_type = "llama"\nvocab_size = 256\nhidden_size = 48\n\n[train]\nsteps = 20\n'
                    b'micro_batch = 2\n\n[optimizer]\nname = "sgd"\nlr = 2.5e-3\nbetas = [0.9, 0.95]\n')
    small = dict(SMALL, **{"data.train": ids})
    text = dict(SMALL, **{"data.train": program.text, "data.tokenizer": tokenizer, "model.vocab_size": 30})
    made, cached, shards = (os.path.join(files, n) for n in ("run", "cached", "shards"))
    finished(program, program.train(made, small))
    finished(program, program.train(cached, text))
    expected, plan = model_bytes(cached), ["plan", "-q", "--backend=cpu"]
    planned = finished(program, plan).out
    weights, config, metrics = (os.path.join(made, *n) for n in (
        ("model", "model.safetensors"), ("model", "config.json"), ("metrics.jsonl",)))
    # The plan in the first line is four fifths of the file.
    write(metrics, b'{"event":"start"}\n' + b"".join(read(metrics).splitlines(keepends=True)[1:]))
    shutil.copytree(os.path.join(made, "model"), shards)
    index = os.path.join(shards, "model.safetensors.index.json")
    names = sorted(safetensors_header(read(weights)))
    write(index, json.dumps({"weight_map": {n: "model.safetensors" for n in names if n != "__metadata__"}}).encode())

    def command(path, arguments, allowed):
        """A command that reads the file in a new folder."""
        def check(cut):
            shutil.rmtree(folder, ignore_errors=True)
            r = program.run(arguments)
            named = r.code == 0 or os.path.basename(path) in r.err
            return "" if r.code in (allowed if cut else (0,)) and named else r.summary(), arguments
        return check

    def resume(name):
        """A file of the run: the damaged checkpoint is skipped, and the same model is trained again."""
        sets, model = dict(small, **{"output.checkpoint_every": 0}), model_bytes(made)
        arguments = program.train(folder, sets, options=["--json"]) + ["--resume"]
        def check(cut):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made, folder)
            r = program.run(arguments)
            skipped = cut and name != "metrics.jsonl"
            why = r.summary() if r.code or skipped != ("skipped step-2" in r.err) else ""
            return why or ("" if model_bytes(folder) == model else "the model differs"), arguments
        return check

    def cache():
        """The tokens of a text."""
        arguments = program.train(cached, text) + ["--overwrite"]
        def check(cut):
            r = program.run(arguments)
            return r.summary() if r.code else "" if model_bytes(cached) == expected else "the model differs", arguments
        return check

    def plugins(cut):
        r = program.run(plan)
        return "" if r.out == planned else f"the plan differs: {r.summary()}", plan

    newest = os.path.join(made, "checkpoints", "step-2")
    tokens = [os.path.join(cached, "cache", n) for n in sorted(os.listdir(os.path.join(cached, "cache")))]
    registry = os.path.join(program.environment["TRAINHOST_CACHE"], "plugins-1.cache")
    ids_only = dict(small, **{"data.tokenizer": "bytes"})
    return [
        ("model.safetensors", weights,
         command(weights, program.train(folder, dict(ids_only, **{"model.weights": weights})), (2,))),
        ("model.safetensors.index.json", index,
         command(index, program.train(folder, dict(ids_only, **{"model.weights": index})), (2,))),
        ("config.json", config, command(config, ["plan", "--model", config, "-q"], (2,))),
        # A shorter token file is a smaller data set, unless a token is cut or no sample remains.
        ("token file", ids, command(ids, program.train(folder, small), (0, 2))),
        ("run file", run_file, command(run_file, ["plan", run_file, "-q", "--backend=cpu"], (0, 2))),
        ("tokenizer", tokenizer, command(tokenizer, program.train(folder, text), (0, 2))),
        *((f"token cache {os.path.basename(p)[-4:]}", p, cache()) for p in tokens if os.path.getsize(p)),
        ("plugin cache", registry, plugins),
        ("metrics.jsonl", metrics, resume("metrics.jsonl")),
        *((f"checkpoint {n}", os.path.join(newest, n), resume(n)) for n in sorted(os.listdir(newest)))]


def finished(program, arguments):
    r = program.run(arguments)
    if r.code != 0:
        raise RuntimeError(f"the command that writes the files fails: {r.summary()}")
    return r


def safetensors_header(data):
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


def small_tokenizer():
    """A SentencePiece model of 30 pieces: the letters and the space."""
    def field(tag, data):
        return bytes([tag, len(data)]) + data

    pieces = [field(0x0A, b"<unk>") + b"\x18\x02"]
    pieces += [field(0x0A, t.encode()) + b"\x15" + struct.pack("<f", -1) for t in "\u2581abcdefghijklmnopqrstuvwxyz.,"]
    return b"".join(field(0x0A, p) for p in pieces) + b"\x12\x02\x18\x01"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


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
