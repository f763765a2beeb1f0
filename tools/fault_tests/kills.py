"""F1 and F2: SIGKILL at random times and at every system call of a run."""
import os
import shutil
import signal
import time

from program import checkpoints, empty, finish_run, model_bytes, seeded, temporary_names

def run_of_saves(c):
    """Settings of a run that mostly saves: each step is followed by a checkpoint."""
    return {"train.steps": c.count(15, 40, 40), "output.checkpoint_every": 1}


def announced_checkpoint(folder):
    """Step of the last checkpoint that metrics.jsonl states; the line is written after the save returned."""
    step = 0
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
            for line in f.read().split(b"\n"):
                if line.startswith(b'{"event":"checkpoint","step":') and line.endswith(b"}"):
                    step = int(line.split(b":")[2].split(b",")[0])
    except FileNotFoundError:
        pass
    return step


def wrong_after(c, reference, folder, r, resumed, announced):
    """What a finished run violates; "" if nothing."""
    if r.code != 0:
        return r.summary()
    if resumed < announced:
        return f"resumed after step {resumed}, but the checkpoint of step {announced} was announced"
    for e in r.events("step"):
        if reference.losses.get(e["step"]) != e["loss"]:
            return f"step {e['step']} has loss {e['loss']}, undisturbed {reference.losses.get(e['step'])}"
    left = temporary_names(folder)
    return reference.difference(folder) or (f"{left[0]} was not removed" if left else "")


def random_kills(c, row):
    """Chains of kills: a run is killed and resumed until it ends, then its model is compared."""
    sets = run_of_saves(c)
    reference = c.reference(sets)
    wanted = c.count(12, 5000, 50000)
    # Without the first run's reading of files from disk.
    span = min(reference.seconds, c.program.run(c.program.train(empty(os.path.join(c.work, "F1")), sets)).seconds)
    kills = first = saving = chain = 0
    while kills < wanted and not c.out_of_time():
        chain += 1
        random = seeded(c.seed, "F1", chain)
        folder = os.path.join(c.work, "F1")
        empty(folder)
        delays, r, resumed = [], None, 0
        for _ in range(200):
            options = ["--resume"] if checkpoints(folder) else ["--overwrite"] if model_bytes(folder) else []
            delays.append(random.uniform(0, 1.3 * span))
            p = c.program.start(c.program.train(folder, sets) + options)
            time.sleep(delays[-1])
            p.send_signal(signal.SIGKILL)
            if p.wait() != -signal.SIGKILL:
                break
            kills += 1
            first += not checkpoints(folder)
            saving += any("step-" in n for n in temporary_names(folder))
            row.cases += 1
            if kills == wanted:
                break
        announced = announced_checkpoint(folder)
        r, resumed = finish_run(c.program, folder, sets) if p.returncode or not model_bytes(folder) else (None, 0)
        why = wrong_after(c, reference, folder, r, resumed, announced) if r else reference.difference(folder)
        if p.returncode not in (0, -signal.SIGKILL):
            why = why or f"a resumed run exits with {p.returncode}"
        if why:
            row.case(False, f"chain {chain} of seed {c.seed}, delays {[round(d, 4) for d in delays]}: {why}",
                     c.repeat("F1"), folder, c.kept)
    row.figure("kills", f"{kills:,}")
    row.figure("before the first checkpoint", f"{first:,}")
    row.figure("during a save", f"{saving:,}")


def counted_calls(c, arguments, fault=None):
    """Calls of a run in order, as (name, path)."""
    log = os.path.join(c.work, "calls.log")
    r = c.program.run(arguments, dict(fault or {}, LOG=log))
    if r.code != 0:
        raise RuntimeError(f"the run that counts calls fails: {r.summary()}")
    with open(log, errors="replace") as f:
        return [tuple((line.rstrip("\n").split(" ", 2) + ["", ""])[1:3]) for line in f]


def starts(c):
    """Situations in which a run is disturbed: name, function that prepares a folder, options."""
    base = c.reference()

    def nothing(folder):
        empty(folder)
        os.rmdir(folder)

    source = os.path.join(c.work, "interrupted run")

    def interrupted(folder):
        nothing(folder)
        if not os.path.isdir(source):
            r = c.program.run(c.program.train(source), {"TRIGGER": '"event":"checkpoint","step":2', "SIGNALS": "9"})
            if r.code != -signal.SIGKILL or checkpoints(source) != [2]:
                raise RuntimeError(f"cannot prepare an interrupted run: {r.summary()}")
        shutil.copytree(source, folder)

    return base, [("new run", nothing, []), ("resumed run", interrupted, ["--resume"])]


def every_call(c, row):
    """Kills a run before each of its system calls, and in the middle of each write."""
    base, situations = starts(c)
    points = 0
    for name, prepare, options in situations:
        folder = os.path.join(c.work, "F2")
        prepare(folder)
        calls = counted_calls(c, c.program.train(folder) + options)
        cases = [(n, "kill") for n in range(1, len(calls) + 1)]
        cases += [(n, "half") for n, call in enumerate(calls, 1) if call[0] in ("write", "pwrite")]
        points += len(cases)
        for n, action in c.sample(cases, 8, "F2" + name):
            prepare(folder)
            fault = {"CALL": n, "ACTION": action}
            r = c.program.run(c.program.train(folder) + options, fault)
            announced = announced_checkpoint(folder)
            why = "" if r.code in (0, -signal.SIGKILL) else f"not killed: {r.summary()}"
            if not why:
                again, resumed = finish_run(c.program, folder) if r.code else (r, announced)
                why = wrong_after(c, base, folder, again, resumed, announced)
            where = " ".join(calls[n - 1]).replace(c.work, "")
            row.case(not why, f"{name}, {action} at call {n} ({where}): {why}",
                     c.program.command(c.program.train(folder) + options, fault), folder, c.kept)
            if c.out_of_time():
                break
    row.figure("system calls and halves of writes", f"{points:,}")
