"""F18 to F20: a rank of a run is killed or hangs; a run is resumed by another number of ranks."""
import copy
import os
import shutil
import signal
import subprocess
import time

from kills import announced_checkpoint, wrong_after
from program import Reference, checkpoints, empty, finish_run, model_bytes, seeded


def launched(c, ranks):
    """The program as `ranks` processes of mpirun; None without MPI."""
    if not (shutil.which("mpirun") and os.path.exists(os.path.join(c.build, "lib", "trainhost", "plugins", "mpi.so"))):
        return None
    program = copy.copy(c.program)
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    program.launcher = ["mpirun", *as_root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    return program


def processes_of(folder):
    """Ranks of the run in `folder`: process by rank."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as f:
                if os.fsencode(f"output.dir={folder}") not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/environ", "rb") as f:
                for variable in f.read().split(b"\0"):
                    if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(variable.split(b"=")[1])] = int(name)
        except OSError:  # it has ended
            pass
    return found


def steps_done(folder):
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
            return f.read().count(b'"event":"step"')
    except FileNotFoundError:
        return 0


def disturb(program, arguments, folder, which, sign, ready):
    """Starts the run and sends `sign` to one rank when ready() holds. Returns (stderr of the run, exit code, seconds
    from the signal to the end of all ranks); None if the run ended before that. A run that does not end has the code
    "hangs", with the ranks that are left; without any it is the launcher that does not end."""
    p = subprocess.Popen([*program.launcher, program.path, *arguments], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=program.environment, cwd=program.work)
    victim = 0
    while not victim and p.poll() is None:
        if ready():
            victim = processes_of(folder).get(which, 0)
        time.sleep(0.002)
    if victim:
        try:
            os.kill(victim, sign)
        except ProcessLookupError:
            victim = 0
    sent = time.monotonic()
    try:
        err, code = p.communicate(timeout=60)[1], p.returncode
        while processes_of(folder) and time.monotonic() < sent + 60:
            time.sleep(0.02)
        code = "hangs" if processes_of(folder) else code
    except subprocess.TimeoutExpired:
        # A rank that was stopped after its last call of MPI keeps nobody from the end but the launcher.
        complete = os.path.exists(os.path.join(folder, "summary.json"))
        left = processes_of(folder)
        for pid in left.values():
            os.kill(pid, signal.SIGCONT if complete else signal.SIGKILL)
        p.kill()
        code = f"hangs: ranks {sorted(left)} are left" if left else "hangs: all ranks have ended, mpirun has not"
        err, victim = p.communicate()[1], victim if not complete else 0
    return (err.decode("utf-8", "replace"), code, time.monotonic() - sent) if victim else None


def disturbed_runs(c, row, sign, sets, most_seconds, says, ready):
    """Runs of several ranks; one of each gets a signal, then the run is resumed and compared with the undisturbed
    one."""
    ranks = c.count(2, 4, 4)
    program = launched(c, ranks)
    if not program:
        return row.not_run("no MPI")
    sets = {"train.steps": c.count(60, 300, 300), "output.checkpoint_every": c.count(5, 2, 2),
            "train.global_batch": 12, "parallel.zero": 1, **sets}
    patient = {k: v for k, v in sets.items() if k != "parallel.timeout"}  # for runs that are not disturbed
    reference = Reference(program, f"reference {row.number}", patient)
    folder = os.path.join(c.work, row.number)
    done = attempts = before = 0
    slowest = 0.0
    while done < c.count(1, 500, 3000) and attempts < c.count(5, 2000, 12000) and not c.out_of_time():
        attempts += 1
        random = seeded(c.seed, row.number, attempts)
        shutil.rmtree(folder, ignore_errors=True)
        which, condition = random.randrange(ranks), ready(random, reference, folder)
        end = disturb(program, program.train(folder, sets), folder, which, sign, condition)
        if not end:
            continue
        done += 1
        before += not checkpoints(folder)
        err, code, seconds = end
        slowest = max(slowest, seconds)
        why = f"the run {code}" if str(code).startswith("hangs") else ""
        if not why and code == 0 and not model_bytes(folder):
            why = "exit code 0 without a model"
        if not why and code != 0 and says not in err:
            why = f"no message with {says!r}: {err[-500:]}"
        if not why and c.tier > 0 and seconds > most_seconds:
            why = f"it ended {seconds:.1f} s after the signal"
        if not why and code != 0:
            announced = announced_checkpoint(folder)
            again, resumed = finish_run(program, folder, patient)
            why = wrong_after(c, reference, folder, again, resumed, announced)
        row.case(not why, f"rank {which}, case {attempts} of seed {c.seed}: {why}", c.repeat(row.number), folder,
                 c.kept)
    row.figure("ranks", ranks)
    row.figure("before the first checkpoint", before)
    row.figure("longest time to the end", f"{slowest:.1f} s")


def killed_rank(c, row):
    """SIGKILL to a random rank at a random time, the start of the processes included."""
    def at_a_random_time(random, reference, _):
        at = time.monotonic() + random.uniform(0, reference.seconds)
        return lambda: time.monotonic() > at

    disturbed_runs(c, row, signal.SIGKILL, {}, 10, "rank", at_a_random_time)


def rank_hangs(c, row):
    """SIGSTOP to a random rank after a random step."""
    def after_a_random_step(random, reference, folder):
        step = random.randrange(1, max(2, len(reference.losses) // 2))
        return lambda: steps_done(folder) >= step

    timeout = c.count(1, 2, 2)
    disturbed_runs(c, row, signal.SIGSTOP, {"parallel.timeout": timeout}, timeout + 10, "waited", after_a_random_step)


def other_number_of_ranks(c, row):
    """The first half of a run on some ranks, the second on others; the losses are those of one process."""
    if not launched(c, 2):
        return row.not_run("no MPI")
    half = 10
    common = {"train.global_batch": 12, "optimizer.schedule": '"constant"', "output.checkpoint_every": half}
    reference = Reference(launched(c, 1), "reference F20", {**common, "train.steps": 2 * half})
    numbers = (1, 2, 3, 4)
    cases = [(a, za, b, zb) for a in numbers for za in (0, 1) for b in numbers for zb in (0, 1)
             if not (a == 1 and za) and not (b == 1 and zb) and (a, za) != (b, zb)]
    worst = 0.0
    for a, za, b, zb in [(3, 1, 2, 0)] if c.tier == 0 else cases:
        if c.out_of_time():
            break
        folder = empty(os.path.join(c.work, "F20"))
        first = launched(c, a).run(launched(c, a).train(folder, {**common, "train.steps": half, "parallel.zero": za}))
        sets = {**common, "train.steps": 2 * half, "parallel.zero": zb}
        r = launched(c, b).run(launched(c, b).train(folder, sets) + ["--resume"]) if first.code == 0 else first
        losses = {e["step"]: e["loss"] for e in first.events("step") + r.events("step")}
        why = "" if r.code == 0 else r.summary()
        if not why and sorted(losses) != sorted(reference.losses):
            why = f"its steps are {sorted(losses)}"
        for step, loss in losses.items() if not why else ():
            difference = abs(loss - reference.losses[step]) / reference.losses[step]
            worst = max(worst, difference)
            if difference > 1e-5:
                why = why or f"step {step} has loss {loss}, in one process {reference.losses[step]}"
        row.case(not why, f"{a} ranks with ZeRO {za}, then {b} with ZeRO {zb}: {why}", c.repeat("F20"), folder, c.kept)
    row.figure("largest relative difference of a loss", f"{worst:.1e}")
