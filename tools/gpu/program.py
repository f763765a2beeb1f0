"""One run of the built program: its arguments, its events while it runs, and its end. Every process that is started
here is also ended here, even after Ctrl-C or a timeout."""
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field


class OutOfTime(Exception):
    """The time limit of a step ended before its work was done. `run`: what the program had printed by then, if it had
    been started."""

    def __init__(self, run=None):
        super().__init__()
        self.run = run


class NotMeasured(Exception):
    """Something cannot be measured here; the text is the reason. Not an error of the whole part."""


@dataclass
class Run:
    words: list
    code: int = 0              # exit code; negative: ended by that signal
    out: str = ""
    events: list = field(default_factory=list)  # lines of `out` that are objects
    err: str = ""
    seconds: float = 0.0
    ended: bool = False        # by us, because the steps that were wanted had been taken

    def all(self, event: str) -> list:
        return [e for e in self.events if e.get("event") == event]

    def one(self, event: str) -> dict:
        found = self.all(event)
        return found[-1] if found else {}

    def losses(self) -> list:
        return [e["loss"] for e in self.all("step")]

    def step_ms(self) -> list:
        return [e["ms"] for e in self.all("step")]

    def reason(self) -> str:
        """Why it failed: the first line of its last message, without the hints."""
        lines = [l.strip() for l in self.err.splitlines() if l.strip()]
        said = next((l for l in lines if l.startswith("trainhost:")), lines[-1] if lines else "")
        return f"exit {self.code}: {said[:240]}"

    def tiers(self) -> dict:
        """tier -> (predicted, measured) bytes."""
        return {
            t["tier"]: (t["predicted_bytes"], t["measured_bytes"])
            for t in self.one("done").get("memory", {}).get("tiers", [])
        }


def stop(process):
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Program:
    """The program under test. `left()` returns the seconds that remain for the current step."""

    def __init__(self, path: str, plugin_path: list, scratch: str, left):
        self.path, self.plugin_path, self.scratch, self.left = path, plugin_path, scratch, left
        self.runs = []  # every command with its outcome, for the JSON

    def call(self, words: list, before: list = (), on_event=None, enough=None, environment=None, longest=None) -> Run:
        """`before`: arguments before the program (a tool that runs it). `on_event(event, process)`; if `enough(events)`
        is true, the run is ended. Raises OutOfTime."""
        seconds = min(self.left(), longest or 1e9)
        if seconds <= 0:
            raise OutOfTime()
        r = Run([*before, self.path, *words, *(w for p in self.plugin_path for w in ("--plugin-path", p))])
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(r.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                                       start_new_session=True, env={**os.environ, **(environment or {})})
            late = False
            try:
                late = not self.read(process, r, begin + seconds, on_event, enough)
            finally:
                stop(process)
                process.stdout.close()
            err.seek(0)
            r.code, r.err, r.seconds = process.returncode, err.read(), time.monotonic() - begin
        self.runs.append(
            {
                "words": r.words,
                "code": r.code,
                "seconds": round(r.seconds, 3),
                "ended_by_us": r.ended,
                "late": late,
                "step_ms": r.step_ms(),
                "error": "" if r.code == 0 or r.ended else r.err[-2000:],
            }
        )
        if late:
            raise OutOfTime(r)
        return r

    @staticmethod
    def read(process, r: Run, until: float, on_event, enough) -> bool:
        """Reads every line of JSON until the process ends; returns False on timeout."""
        rest, fd = b"", process.stdout.fileno()
        while True:
            wait = until - time.monotonic()
            if wait <= 0:
                return False
            if not select.select([fd], [], [], wait)[0]:
                continue
            piece = os.read(fd, 1 << 16)
            if not piece:
                break
            r.out += piece.decode("utf-8", "replace")
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):  # a line of an object over many lines may be JSON too
                        r.events.append(event)
                        if on_event:
                            on_event(event, process)
            if enough and enough(r.events):
                r.ended = True
                return True
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def train(self, keys: dict, run_file: str = "", words: list = (), **more) -> Run:
        """`train` on the cuda backend without fallback, with these run-file keys; its output files are removed at once.
        """
        out = tempfile.mkdtemp(prefix="out-", dir=self.scratch)
        settings = {**keys, "output.dir": out}
        line = ["train", *([run_file] if run_file else []), "--backend=cuda", "--no-fallback", "--json", "-q", *words]
        try:
            return self.call(line + [w for k, v in settings.items() for w in ("--set", f"{k}={v}")], **more)
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def plan(self, keys: dict) -> dict:
        """The plan of the same run as an object; {} if it cannot be planned."""
        r = self.call(
            ["plan", "--backend=cuda", "--json", *(w for k, v in keys.items() for w in ("--set", f"{k}={v}"))],
            longest=60,
        )
        return json.loads(r.out) if r.code in (0, 3) else {}


def some_steps(warm_up: int, least: int, most: int, seconds: float):
    """For `enough`: after the warm-up at least `least` steps, then until `most` steps or `seconds` of steps."""
    def enough(events):
        ms = [e["ms"] for e in events if e.get("event") == "step"][warm_up:]
        return len(ms) >= most or (len(ms) >= least and sum(ms) >= 1e3 * seconds)
    return enough


def rate_of(r: Run, warm_up: int) -> float:
    """Tokens per second of the median step after the warm-up."""
    steps = r.all("step")[warm_up:]
    if not steps:
        raise NotMeasured(f"no step after the warm-up: {r.reason()}")
    ms = sorted(e["ms"] for e in steps)[len(steps) // 2]
    return steps[0]["tokens"] / ms * 1e3
