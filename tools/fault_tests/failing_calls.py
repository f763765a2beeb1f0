"""F3 and F4: system calls that fail, and disks that are full, read-only, gone or another one."""
import errno
import os
import resource
import shutil
import subprocess
import threading

from kills import announced_checkpoint, counted_calls, starts, wrong_after
from program import checkpoints, empty, finish_run

ERRORS = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EACCES, errno.EINTR]
CAN_BE_SHORT = ("write", "pwrite", "read", "pread")


def wrong_after_failure(c, base, folder, r):
    """Checks the failing run itself, then lets it continue to its end without faults."""
    if r.code not in (0, 1, 2, 4, 75):
        return f"exit {r.code}: {r.err[-300:]}"
    if r.code == 0:
        return base.difference(folder)
    if "trainhost:" not in r.err:
        return f"exit {r.code} without a message: {r.err[-300:]!r}"
    announced = announced_checkpoint(folder)
    again, resumed = finish_run(c.program, folder)
    return wrong_after(c, base, folder, again, resumed, announced)


def pairs(c, name, calls):
    """Tier 0: some (call, error) pairs. Tier 1: every call once, with errors and short counts in turn for the calls of
    one name. Tier 2: every call with each of them."""
    every, rotated, seen = [], [], {}
    for n, (call, _) in enumerate(calls, 1):
        actions = ERRORS + (["short"] if call in CAN_BE_SHORT else [])
        every += [(n, a) for a in actions]
        seen[call] = seen.get(call, c.seed) + 1
        rotated.append((n, actions[seen[call] % len(actions)]))
    return every, c.sample(rotated if c.tier == 1 else every, 10, "F3" + name)


def every_call(c, row):
    """Calls of a run fail with an error, or transfer half of their bytes; --jobs of them at the same time."""
    base = c.reference()
    workers, lock, total, failed = [c.worker(i) for i in range(c.jobs)], threading.Lock(), 0, []
    without_reason = []

    def prepared_folder(worker, prepare):
        """The same calls follow in each case: the caches are those of the first run."""
        folder, kept = os.path.join(worker.work, "F3"), os.path.join(worker.work, "kept cache")
        cache = worker.program.environment["TRAINHOST_CACHE"]
        if not os.path.isdir(kept):
            worker.program.run(["plugins", "list"])
            shutil.copytree(cache, kept)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(kept, cache)
        prepare(folder)
        return folder

    def one_case(worker, name, prepare, options, call, n, action):
        folder = prepared_folder(worker, prepare)
        fault = {"CALL": n, "ACTION": action}
        arguments = worker.program.train(folder) + options
        r = worker.program.run(arguments, fault)
        why = wrong_after_failure(worker, base, folder, r)
        if action == "short" and r.code != 0 and not why:
            why = f"a short count is not continued: {r.summary()}"
        label = "short" if action == "short" else errno.errorcode[action]
        what = f"{name}, {label} at call {n} ({' '.join(call).replace(worker.work, '')}): "
        with lock:
            failed.extend([n] if r.code else [])
            if action != "short" and r.code == 1 and os.strerror(action).lower() not in r.err.lower():
                without_reason.append(what + r.err.strip()[-300:])
            row.case(not why, what + why, worker.program.command(arguments, fault), folder, c.kept)

    same_calls(c, row, base)
    for situation, name in enumerate(n for n, _, _ in starts(workers[0])[1]):
        prepared = [starts(w)[1][situation] for w in workers]
        folder = prepared_folder(workers[0], prepared[0][1])
        calls = counted_calls(workers[0], workers[0].program.train(folder) + prepared[0][2])
        every, cases = pairs(c, name, calls)
        total += len(every)

        c.in_parallel(cases, lambda i, case: one_case(workers[i], *prepared[i], calls[case[0] - 1], *case))
    row.figure("of (call, error) pairs", f"{total:,}")
    row.figure("runs that ended with a message", f"{len(failed):,}")
    row.figure("messages without the system's reason", f"{len(without_reason):,}")
    c.details["F3 messages without the system's reason"] = sorted(without_reason)[:50]


def same_calls(c, row, base):
    """Calls that fail wherever they occur."""
    folder = os.path.join(c.work, "F3")
    for fault, wanted, why in [
            ({"PATH": "/proc/meminfo", "ACTION": errno.EACCES}, "", "free memory is not known, and the run goes on"),
            ({"PATH": "/F3/checkpoints", "NAMES": "stat", "ACTION": errno.EIO}, os.strerror(errno.EIO),
             "a directory whose type cannot be read is not a missing one")]:
        shutil.rmtree(folder, ignore_errors=True)
        fault.update({"CALL": 1, "FROM": 1})
        arguments = c.program.train(folder)
        r = c.program.run(arguments, fault)
        ok = wanted in r.err and r.code == 1 if wanted else r.code == 0 and not base.difference(folder)
        row.case(ok, f"{why}: {r.summary()}", c.program.command(arguments, fault))


class SmallDisk:
    """A tmpfs of a given size; None where this process may not mount one."""

    def __init__(self, c, size):
        self.folder = empty(os.path.join(c.work, "disk"))
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.folder]
        self.mounted = subprocess.run(words, capture_output=True).returncode == 0

    def option(self, words):
        return subprocess.run(["mount", "-o", "remount," + words, self.folder], capture_output=True).returncode == 0

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", self.folder], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def disks(c, row):
    base, _ = starts(c)
    full_disks(c, row, base)
    folder = os.path.join(c.work, "F4")

    def scenario(name, fault=None, limits=(), must_fail=True, prepare=None):
        empty(folder)
        os.rmdir(folder)
        if prepare:
            prepare()
        r = c.program.run(c.program.train(folder), fault, limits=limits)
        why = "" if r.code in ((1, 2) if must_fail else (0, 1)) else f"unexpected: {r.summary()}"
        why = why or wrong_after_failure(c, base, folder, r)
        row.case(not why, f"{name}: {why}", c.program.command(c.program.train(folder), fault), folder, c.kept)

    for error in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        # From the n-th write in the folder of the run on: the checkpoint of step 2, of step 4, or the model.
        for n in c.sample([1, 2, 3, 4, 5, 8, 12, 16, 20, 30], 1, f"F4{error}"):
            scenario(f"{os.strerror(error)} from write {n} on",
                     {"NAMES": "write,mkdir,open,fsync", "PATH": "/F4", "CALL": n, "FROM": 1, "ACTION": error})
    scenario("another file system at every rename", {"NAMES": "rename", "PATH": "/F4", "CALL": 1, "FROM": 1,
                                                     "ACTION": errno.EXDEV})
    for size in c.sample([0, 100, 1000, 4000, 10000, 20000], 2, "F4 limit"):
        scenario(f"files of at most {size} bytes", limits=[(resource.RLIMIT_FSIZE, size)])
    vanished(c, row, base)


def full_disks(c, row, base):
    """Real file systems that are too small or read-only."""
    for kib in c.sample([16, 32, 64, 96, 128, 160, 192, 256, 384, 512, 2048, 65536], 2, "F4 disk"):
        disk = SmallDisk(c, f"{kib}k")
        try:
            if not disk.mounted:
                row.figure("full disks", "not run: no right to mount a tmpfs")
                return
            folder = os.path.join(disk.folder, "run")
            r = c.program.run(c.program.train(folder))
            why = "" if r.code in (0, 1) else f"unexpected: {r.summary()}"
            if r.code == 1 and "No space left" not in r.err and "free" not in r.err:
                why = f"the message does not name the full disk: {r.summary()}"
            if not why and r.code == 1:
                disk.option("size=64m")  # space returns
                announced = announced_checkpoint(folder)
                again, resumed = finish_run(c.program, folder)
                why = wrong_after(c, base, folder, again, resumed, announced)
            row.case(not why, f"disk of {kib} KiB: {why}", c.repeat("F4"))
        finally:
            disk.remove()
    disk = SmallDisk(c, "16m")
    try:
        folder = os.path.join(disk.folder, "run")
        disk.option("ro")
        r = c.program.run(c.program.train(folder))
        row.case(r.code == 1 and "Read-only" in r.err, f"read-only disk: {r.summary()}")
        disk.option("rw")
        r = c.program.run(c.program.train(folder))
        row.case(r.code == 0 and not base.difference(folder), f"disk that is writable again: {r.summary()}")
    finally:
        disk.remove()


def vanished(c, row, base):
    """The folder of the run is removed while it runs: the run stops before the checkpoint and is continued by force."""
    for n, step in enumerate(c.sample([2, 4], 1, "F4 vanished")):
        folder = os.path.join(c.work, "F4")
        empty(folder)
        os.rmdir(folder)
        fault = {"TRIGGER": f'"event":"step","step":{step - 1},', "SIGNALS": "19"}
        p = c.program.start_paused(c.program.train(folder), fault)
        shutil.rmtree(folder)
        r = c.program.continue_paused(p)
        row.case(r.code in (0, 1) and (r.code == 0 or "trainhost:" in r.err), f"vanished folder: {r.summary()}")
        again, _ = finish_run(c.program, folder)
        row.case(again.code in (0, 2), f"run after a vanished folder: {again.summary()}", folder=folder, kept_in=c.kept)
        row.case(again.code != 0 or not base.difference(folder), "the model differs after the folder vanished")
