"""Runs one measured process in a clean environment; returns its output and the peak memory counted by the kernel."""
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

# Prefixes of variables that choose kernels, threads or memory behaviour. They are removed for every column, because
# shells and containers preset some (OPENBLAS_CORETYPE=Haswell halves the speed with AVX-512).
PRESET_PREFIXES = (
    "OPENBLAS_",
    "GOTO_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "DNNL_",
    "ONEDNN_",
    "ATEN_",
    "TORCH",
    "TRAINHOST_",
    "MALLOC_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)


# time.monotonic() at which every child is stopped: the time limit of the whole table.
deadline = float("inf")


# Variables that the user set for every column (--env), after the removal.
chosen: dict = {}


def clean_environment(extra: dict) -> dict:
    env = {k: v for k, v in os.environ.items() if not k.startswith(PRESET_PREFIXES)}
    env.update(chosen)
    env.update(extra)
    return env


@dataclass
class Outcome:
    code: int            # exit code; negative: ended by that signal
    out: str
    err: str
    peak_bytes: int      # peak resident memory (ru_maxrss), at least that of the starting process
    timed_out: bool = False
    arguments: list = field(default_factory=list)

    def reason(self) -> str:
        """Why it failed, in one line."""
        if self.timed_out:
            return "took too long"
        lines = [l.strip() for l in self.err.splitlines() if l.strip()]
        return lines[-1][:200] if lines else f"exit code {self.code}"


def run_child(arguments: list, extra: dict, timeout: float = 900) -> Outcome:
    """Runs `arguments` to its end, at most until `deadline`. Peak memory comes from wait4, the same counter for every
    column."""
    timeout = max(1.0, min(timeout, deadline - time.monotonic()))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(arguments, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                 env=clean_environment(extra), start_new_session=True)
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # Ctrl-C: leave no process behind
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        finally:
            timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        return Outcome(child.returncode, out.read(), err.read(), usage.ru_maxrss * 1024, late.is_set(), arguments)
