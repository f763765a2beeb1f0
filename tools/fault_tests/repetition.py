"""F17, F25, F26 and F28: the same bits again, two runs in one folder, earlier checkpoints, and hours of training."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from program import checkpoints, empty, seeded


def same_bits(c, row):
    """A run of 200 steps is resumed after every step; and runs with 1, 2 and 4 threads are compared."""
    steps = c.count(20, 200, 200)
    sets = {"train.steps": steps, "output.checkpoint_every": 1, "output.keep": steps + 1}
    reference = c.reference(sets)
    folder = os.path.join(c.work, "F17")
    for step in c.sample(list(range(1, steps)), 2, "F17"):
        empty(folder)
        os.makedirs(os.path.join(folder, "checkpoints"))
        name = os.path.join("checkpoints", f"step-{step}")
        shutil.copytree(os.path.join(reference.folder, name), os.path.join(folder, name))
        arguments = c.program.train(folder, dict(sets, **{"output.checkpoint_every": steps})) + ["--resume"]
        r = c.program.run(arguments)
        why = r.summary() if r.code else reference.difference(folder)
        started = [e.get("resumed_from") for e in r.events("start")]
        row.case(not why and started == [step], f"resumed after step {step}: {why or started}",
                 c.program.command(arguments), folder, c.kept)
    row.figure("resumed after each of", f"{steps} steps")
    runs = 0
    for i in range(c.count(1, 34, 334)):
        for threads in (1, 2, 4):
            shutil.rmtree(folder, ignore_errors=True)
            # All cores are used only where there is enough work: larger than the tiny run.
            values = {"model.hidden_size": 64, "model.intermediate_size": 128, "model.num_attention_heads": 4,
                      "model.head_dim": 16, "data.seq_len": 32, "train.micro_batch": 4, "train.steps": 4}
            other = c.reference(values)
            r = c.program.run(c.program.train(folder, dict(values, **{"train.threads": threads})))
            row.case(r.code == 0 and not other.difference(folder), f"{threads} threads, repeat {i}: {r.summary()}",
                     folder=folder, kept_in=c.kept)
            runs += 1
    row.figure("repeats with 1, 2 and 4 threads", runs)


def two_runs(c, row):
    """Two runs start at the same time in one folder: one trains, the other is refused, and nothing is mixed."""
    base, folder = c.reference(), os.path.join(c.work, "F25")
    refused = 0
    for i in range(c.count(2, 300, 1000)):
        empty(folder)
        os.rmdir(folder)
        both = [subprocess.Popen([c.program.path, *c.program.train(folder)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=c.program.environment,
                                 cwd=c.work) for _ in range(2)]
        ends = sorted((p.returncode, e.decode("utf-8", "replace")) for p, e in ((p, p.communicate()[1]) for p in both))
        codes = [code for code, _ in ends]
        # 1: the folder is locked; 2: the other run had ended, or had written a checkpoint.
        ok = codes[0] == 0 and codes[1] in (1, 2) and "trainhost:" in ends[1][1]
        refused += codes[1] == 1
        row.case(ok and not base.difference(folder), f"race {i}: exit codes {codes}: {ends[1][1][-200:]}", "", folder,
                 c.kept)
        if c.out_of_time():
            break
    row.figure("refused by the lock", f"{refused:,}")


def earlier_checkpoints(c, row):
    """Runs that earlier versions interrupted, kept in tests/golden/checkpoints, are resumed to their end. The losses
    are those of the version that wrote them; another processor rounds them differently."""
    source, folder = os.path.join(c.root, "tests", "golden", "checkpoints"), os.path.join(c.work, "F26")
    versions = [v for v in sorted(os.listdir(source)) if os.path.isdir(os.path.join(source, v))]
    for version in versions:
        kept = os.path.join(source, version)
        empty(folder)
        shutil.copytree(os.path.join(kept, "checkpoints"), os.path.join(folder, "checkpoints"))
        arguments = ["train", os.path.join(kept, "run.toml"), "--resume", "--json", "-q", "--set",
                     f"output.dir={folder}"]
        r = c.program.run(arguments, directory=kept)
        with open(os.path.join(kept, "losses.json")) as f:
            expected = json.load(f)
        losses = {str(e["step"]): e["loss"] for e in r.events("step")}
        ok = r.code == 0 and [e.get("resumed_from") for e in r.events("start")] == [2] and \
            losses.keys() == expected.keys() and all(abs(losses[s] - expected[s]) < 1e-4 for s in expected)
        row.case(ok, f"{version}: {r.summary()}, losses {losses}, expected {expected}", c.program.command(arguments),
                 folder, c.kept)
    changed_default(c, row, os.path.join(source, "fcdb1c2"), folder)
    newer(c, row)
    row.figure("versions", len(versions))


def changed_default(c, row, kept, folder):
    """The run of a version that had other defaults, without these keys: the message names key and value."""
    empty(folder)
    shutil.copytree(os.path.join(kept, "checkpoints"), os.path.join(folder, "checkpoints"))
    with open(os.path.join(kept, "run.toml")) as f:
        lines = [line for line in f if not line.startswith(("lr ", "min_lr ", "betas "))]
    file = os.path.join(c.work, "F26.toml")
    with open(file, "w") as f:
        f.writelines(lines)
    arguments = ["train", file, "--resume", "-q", "--set", f"output.dir={folder}", "--set",
                 f"data.train={os.path.join(kept, 'tokens.bin')}"]
    r = c.program.run(arguments)
    row.case(r.code == 2 and "optimizer.lr was 0.006" in r.err and "default" in r.err,
             f"a run of other defaults: {r.summary()}", c.program.command(arguments))


def newer(c, row):
    """A checkpoint of a later format is refused with that reason, not taken for a damaged one."""
    folder = os.path.join(c.work, "F26")
    empty(folder)
    os.rmdir(folder)
    c.program.run(c.program.train(folder), {"TRIGGER": '"event":"checkpoint","step":2', "SIGNALS": "9"})
    path = os.path.join(folder, "checkpoints", "step-2", "manifest.json")
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace('"format": 1', '"format": 2', 1))
    r = c.program.run(c.program.train(folder) + ["--resume"])
    # The seal no longer matches, which is what a program that knows only format 1 can say.
    row.case(r.code == 1 and "manifest" in r.err, f"a later format: {r.summary()}")


def many_plugin_files(c, row):
    """A plugin folder with many files that are no plugins: listed within a time per file, the second time from the
    cache."""
    count = c.count(200, 10_000, 10_000)
    folder = empty(os.path.join(c.work, "F22"))
    for i in range(count):
        with open(os.path.join(folder, f"file{i}.so"), "w") as f:
            f.write("no library")
    for label in ("first", "second"):
        before = processor_seconds()
        r = c.program.run(["plugins", "list", "--json", "--plugin-path", folder])
        row.case(r.code == 0 and r.out.count('"rejected"') >= count, f"{label} list: {r.summary()}")
        seconds = processor_seconds() - before
        row.case(seconds < 2, f"the {label} list of {count:,} files took {seconds:.1f} s of processor time")
        row.figure(f"{label} list of {count:,} files", f"{seconds:.2f} s of processor time")


def processor_seconds():
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident_kib(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0


def slope(points):
    """Least squares over (hours, KiB)."""
    n = len(points)
    x, y = sum(p[0] for p in points) / n, sum(p[1] for p in points) / n
    below = sum((p[0] - x) ** 2 for p in points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / below if below else 0.0


def soak(c, row):
    """A run that is killed and resumed about once a minute, for half of the time, ends with a checkpoint at a signal.
    Then the same run is left alone until it has written the checkpoint of that step; both are compared."""
    minutes = c.minutes if c.minutes is not None else c.count(0.15, 60, 360)
    half = 30 * minutes  # seconds
    interval = min(60, half / 5)  # mean seconds between kills
    rest = min(5, half / 5)  # seconds of the run that ends at a signal, at least
    # Steps of about a millisecond, and more of them than there is time for.
    sets = {"train.steps": 1_000_000_000, "train.eval_every": 0, "model.hidden_size": 64, "data.seq_len": 32,
            "model.intermediate_size": 128, "model.num_attention_heads": 4, "model.head_dim": 16,
            "train.micro_batch": 4}
    folder, undisturbed = os.path.join(c.work, "F28"), os.path.join(c.work, "F28 undisturbed")
    kills, lost, random = 0, 0, seeded(c.seed, "F28")

    def start(where, more):
        resume = ["--resume"] if checkpoints(where) else []
        return c.program.start(c.program.train(where, dict(sets, **more)) + resume)

    def watch(process, seconds, is_over=lambda: False):
        """Waits; returns the resident size once a second after the first ten, as (hours, KiB)."""
        points, begin = [], time.monotonic()
        while process.poll() is None and time.monotonic() < begin + seconds and not is_over():
            time.sleep(min(1, max(0.01, begin + seconds - time.monotonic())))
            if time.monotonic() > begin + 10 and process.poll() is None:
                points.append(((time.monotonic() - begin) / 3600, resident_kib(process.pid)))
        return points

    for name in (folder, undisturbed):
        shutil.rmtree(name, ignore_errors=True)
    often = {"output.checkpoint_every": 0, "train.checkpoint_minutes": min(0.1, interval / 240)}
    end = time.monotonic() + half
    while True:
        before, p = max(checkpoints(folder), default=0), start(folder, often)
        left = end - time.monotonic()
        seconds = random.uniform(interval / 3, interval * 5 / 3)
        if left < seconds + rest:
            break
        watch(p, seconds)
        row.case(p.poll() is None, f"the run ended with {p.returncode} after kill {kills}", "", folder, c.kept)
        if p.poll() is not None:
            return
        p.send_signal(signal.SIGKILL)
        p.wait()
        kills += 1
        lost += max(checkpoints(folder), default=0) == before
    watch(p, max(left, rest))
    p.send_signal(signal.SIGTERM)
    row.case(p.wait() == 75, f"the run that was killed {kills} times ends at a signal with {p.returncode}")
    steps = max(checkpoints(folder), default=0)
    p = start(undisturbed, {"output.checkpoint_every": max(1, steps)})
    points = watch(p, 24 * 3600, lambda: steps in checkpoints(undisturbed))
    p.send_signal(signal.SIGTERM)
    row.case(p.wait() == 75, f"the undisturbed run ends at a signal with {p.returncode}")
    why = different_checkpoint(folder, undisturbed, steps)
    row.case(not why, f"checkpoint of step {steps:,}: {why}", "", folder, c.kept)
    points = points[len(points) // 2:]  # tables and caches have their size by then
    if len(points) > 20:
        growth = slope(points)
        row.case(growth < 64, f"resident memory grows by {growth:.0f} KiB per hour")
        row.figure("growth of resident memory, KiB per hour", f"{growth:.1f}")
    row.figure("minutes", f"{minutes:g}")
    row.figure("steps of each of two runs", f"{steps:,}")
    row.figure("kills", kills)
    row.figure("kills before a new checkpoint", lost)


def different_checkpoint(one, other, step):
    """Which file of tensors of that checkpoint differs; "" if none."""
    a, b = (os.path.join(f, "checkpoints", f"step-{step}") for f in (one, other))
    names = sorted(n for n in os.listdir(a) if n.endswith(".safetensors")) if os.path.isdir(a) else []
    if not names:
        return "there are no tensors"
    for n in names:
        with open(os.path.join(a, n), "rb") as f, open(os.path.join(b, n), "rb") as g:
            if f.read() != g.read():
                return f"{n} differs"
    return ""
