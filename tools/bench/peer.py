"""Columns of the peers: torch, run by any Python that has it, with the fastest of several settings.

The fastest setting depends on the machine and the model. Each is tried before the rounds of a row.
"""
import json
import os
import time

from ceiling import QUIET_THREADS
from child import run_child
from machine import openblas_core
from rows import Row
from sample import NotMeasured, Sample

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_step.py")


class Setting:
    def __init__(self, name: str, environment: dict, **arguments):
        self.name, self.environment = name, environment
        self.arguments = {"optimizer": "foreach", **arguments}


def settings_of(major: int) -> list:
    """Settings to try, the usually fastest first, because the time limit of the others depends on it. torch 1
    multiplies with OpenBLAS in fp32, so the choice of its kernels matters; torch 2 has its own library."""
    passive = {"OMP_WAIT_POLICY": "passive"}
    if major >= 2:
        return [Setting("passive threads", passive, optimizer="fused"), Setting("defaults", {}, optimizer="fused")]
    fitting = {"OPENBLAS_CORETYPE": openblas_core()}
    quiet = {**fitting, **QUIET_THREADS}
    return [Setting("fitting kernels, passive threads", quiet),
            Setting("fitting kernels, passive threads, loop optimizer", quiet, optimizer="loop"),
            Setting("fitting kernels", fitting)]


def torch_version(python: str) -> str:
    """Version of torch; "" if there is no such Python or it has no torch."""
    try:
        r = run_child([python, "-c", "import torch; print(torch.__version__)"], {}, 120)
    except OSError:
        return ""
    return r.out.strip() if r.code == 0 else ""


class Peer:
    """One Python, one precision, eager or compiled."""

    def __init__(self, python: str, version: str, precision: str, compiled: bool, threads: int, work: str):
        self.python, self.version, self.precision, self.compiled = python, version, precision, compiled
        self.threads, self.work = threads, work
        short = ".".join(version.split(".")[:2])
        self.name = (
            (f"torch {short}" if version else f"torch of {python}")
            + (" compiled" if compiled else "")
            + " "
            + precision
        )
        self.chosen = {}  # row name -> Setting
        self.tried = {}   # row name -> {setting name: tokens a second}
        self.reasons = {}  # row name -> error of the last setting that failed

    def choose(self, row: Row, seconds: float, statistic: str, tries: int, say, may_try=lambda: True):
        """Tries every setting `tries` times, because other work on the machine can slow one try. tries = 0 chooses the
        first setting without trying. After the first try that worked, others are made only while may_try()."""
        if not self.version:
            return
        settings = settings_of(int(self.version.split(".")[0]))
        if tries == 0:
            self.chosen[row.name] = settings[0]
            return
        timeout, tried = 600.0, {}
        for setting in settings * tries:
            if tried and not may_try():
                break
            begin = time.monotonic()
            try:
                rate = self.run(row, 0, 3, seconds / 3, setting, least=1, timeout=timeout).tokens_per_s(statistic)
                timeout = min(timeout, 30 + 5 * (time.monotonic() - begin))
                tried[setting.name] = max(round(rate, 1), tried.get(setting.name, 0.0))
            except NotMeasured as e:
                self.reasons[row.name] = str(e)
        self.tried[row.name] = tried
        if tried:
            self.chosen[row.name] = max((s for s in settings if s.name in tried), key=lambda s: tried[s.name])
        say(f"{row.name}: {self.name}: " + "; ".join(f"{k}: {v:,.0f}" for k, v in tried.items()))

    def measure(self, row: Row, round_: int, steps: int, seconds: float) -> Sample:
        if not self.version:
            raise NotMeasured("not installed")
        if row.name not in self.chosen:
            raise NotMeasured(self.reasons.get(row.name, "failed"))
        return self.run(row, round_, steps, seconds, self.chosen[row.name])

    def run(self, row: Row, round_: int, steps: int, seconds: float, setting: Setting, least=3,
            timeout=900.0) -> Sample:
        arguments = {k: getattr(row, k) for k in ("hidden", "layers", "heads", "intermediate", "vocab", "batch", "seq")}
        arguments.update(threads=self.threads, precision=self.precision, compile=self.compiled, steps=steps,
                         seconds=seconds, least=least, **setting.arguments)
        command = [self.python, SCRIPT, json.dumps(arguments)]
        env = dict(setting.environment)
        if self.compiled:  # later rounds use the cache
            env["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(self.work, "inductor")
        r = run_child(command, env, timeout)
        if r.code != 0:
            raise NotMeasured("failed: " + r.reason())
        j = json.loads(r.out.splitlines()[-1])
        return Sample(
            row.name,
            self.name,
            round_,
            j["tokens"],
            j["step_ms"],
            r.peak_bytes,
            j["parameters"],
            command,
            env,
            j["first_loss"],
            {"torch": j["torch"], "setting": setting.name, "threads": j["threads"], "sdpa": j["sdpa"]},
        )
