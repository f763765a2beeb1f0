"""One measured process: a clean environment, its output, and its peak memory as the kernel counted it."""
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field

# Variables that choose kernels, threads or memory behaviour. Removed for every column alike: shells and containers pin
# some of them (OPENBLAS_CORETYPE=Haswell halves the speed of a machine with AVX-512), and a column sets what it needs.
PINS = ("OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH", "TRAINHOST_",
        "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


def clean_environment(extra: dict) -> dict:
    env = {k: v for k, v in os.environ.items() if not k.startswith(PINS)}
    env.update(extra)
    return env


@dataclass
class Outcome:
    code: int            # exit code; negative: ended by that signal
    out: str
    err: str
    peak_bytes: int      # peak resident memory (ru_maxrss), never less than that of the process which started it
    timed_out: bool = False
    words: list = field(default_factory=list)

    def reason(self) -> str:
        """Why it failed, in one line."""
        if self.timed_out:
            return "took too long"
        lines = [l.strip() for l in self.err.splitlines() if l.strip()]
        return lines[-1][:200] if lines else f"exit code {self.code}"


def run_child(words: list, extra: dict, timeout: float = 900) -> Outcome:
    """Runs `words` to its end. One instrument for every column: wait4 reads the same counter for all of them."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                 env=clean_environment(extra), start_new_session=True)
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # Ctrl-C: leave nothing behind
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        finally:
            timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        return Outcome(child.returncode, out.read(), err.read(), usage.ru_maxrss * 1024, late.is_set(), words)
