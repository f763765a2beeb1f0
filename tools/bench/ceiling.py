"""Column `ceiling`: gemm_replay.cpp, compiled for this machine, on the pthread variant of OpenBLAS."""
import glob
import json
import os
import shutil

from child import run_child
from machine import openblas_core
from rows import Row
from sample import NotMeasured, Sample

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gemm_replay.cpp")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp"]
CHUNKS = "256,512,1024"  # head chunk sizes in tokens; the best one counts
WARMUP = 1               # repeats not counted: the first one has page faults

# Without these, workers of OpenBLAS and OpenMP spin after each product and take cores from each other.
QUIET_THREADS = {"OPENBLAS_THREAD_TIMEOUT": "10", "OMP_WAIT_POLICY": "passive"}


def find_openblas() -> str:
    """Debian's pthread variant: the replay is a tenth slower with the others. "" if it is not installed."""
    found = sorted(glob.glob("/usr/lib/*/openblas-pthread/libopenblas.so.0"))
    return found[0] if found else ""


class Ceiling:
    def __init__(self, work: str, threads: int, library: str):
        self.name = "ceiling" + ("" if threads > 1 else ", 1 thread")
        self.precision, self.threads, self.library = "fp32", threads, library or find_openblas()
        self.binary = os.path.join(work, "gemm_replay")
        self.part = f"{self.binary}.{os.getpid()}"

    def build(self):
        """Compiles at every start of the tool: it takes two seconds, and the machine may have changed."""
        compiler = shutil.which("g++")
        if not compiler:
            raise NotMeasured("no g++")
        r = run_child([compiler, *FLAGS, SOURCE, "-ldl", "-o", self.part], {})
        if r.code != 0:
            raise NotMeasured("does not compile: " + r.reason())
        os.replace(self.part, self.binary)

    def measure(self, row: Row, round_: int, steps: int) -> Sample:
        if not self.library:
            raise NotMeasured("no OpenBLAS (pthread)")
        if round_ == 0 or not os.path.exists(self.binary):
            self.build()
        repeats = max(3, steps // 3) + WARMUP
        arguments = (
            [self.binary, self.library]
            + [
                str(n)
                for n in (
                    self.threads,
                    repeats,
                    row.hidden,
                    row.layers,
                    row.heads,
                    row.intermediate,
                    row.vocab,
                    row.batch,
                    row.seq,
                )
            ]
            + [CHUNKS]
        )
        env = {"OPENBLAS_CORETYPE": openblas_core(), **QUIET_THREADS}
        r = run_child(arguments, env)
        if r.code != 0:
            raise NotMeasured("failed: " + r.reason())
        tried = [json.loads(line) for line in r.out.splitlines()]
        for t in tried:
            del t["step_ms"][:WARMUP]
        best = min(tried, key=lambda t: min(t["step_ms"]))
        return Sample(row.name, self.name, round_, best["tokens"], best["step_ms"], r.peak_bytes, best["parameters"],
                      arguments, env, None, {"core": best["core"], "chunks": tried})
