"""Results: one line per figure, compared with its bound if it has one; a table and JSON. Uses no clock and no device.
"""
from dataclasses import asdict, dataclass, field
from typing import Optional

HELD, SHORT, NOTED, SKIPPED = "held", "SHORT", "noted", "skipped"
FAILED, LEFT_OUT = "FAILED", "LEFT OUT"
BAD = (SHORT, FAILED, LEFT_OUT)


@dataclass
class Figure:
    step: str                # of which step, e.g. "golden"
    what: str
    value: Optional[float]
    mark: str                # in words, "" where there is none
    status: str
    text: str = ""           # the figure with its unit, and what else a reader wants to know
    detail: dict = field(default_factory=dict)


class Report:
    def __init__(self, judges: bool = True):
        """`judges`: False if figures of speed mean nothing; bounds of speed and memory are then printed but not
        applied."""
        self.judges, self.figures = judges, []

    def add(self, step, what, value, status, text, mark="", **detail):
        self.figures.append(Figure(step, what, value, mark, status, text, detail))
        return self.figures[-1]

    def note(self, step, what, value, text, **detail):
        """A figure without a bound."""
        return self.add(step, what, value, NOTED, text, **detail)

    def aim(self, step, what, value, aim, text, **detail):
        """A figure with an aim; a lower value is not a failure."""
        return self.add(step, what, value, NOTED, f"{text} ({value / aim:.0%} of the aim)", f"aim {aim:,.0f}", **detail)

    def judge(self, step, what, value, holds, mark, text, always=False, **detail):
        """A figure with a bound. `always`: the bound applies even if figures of speed mean nothing."""
        status = (HELD if holds else SHORT) if self.judges or always else NOTED
        return self.add(step, what, value, status, text, mark, **detail)

    def at_least(self, step, what, value, least, text, **more):
        return self.judge(step, what, value, value >= least, f">= {least:g}", text, **more)

    def at_most(self, step, what, value, most, text, **more):
        return self.judge(step, what, value, value <= most, f"<= {most:g}", text, **more)

    def skip(self, step, why):
        return self.add(step, "the whole step", None, SKIPPED, f"not measured: {why}")

    def fail(self, step, why):
        return self.add(step, "the step ended early", None, FAILED, why)

    def leave_out(self, step, why):
        return self.add(step, "the rest of the step", None, LEFT_OUT, f"not measured: {why}")

    def bad(self) -> list:
        return [f for f in self.figures if f.status in BAD]

    def exit_code(self) -> int:
        return 1 if self.bad() else 0

    def as_json(self) -> list:
        return [asdict(f) for f in self.figures]

    def table(self) -> str:
        lines = [["step", "what", "figure", "mark", ""]]
        last = None
        for f in self.figures:
            lines.append([f.step if f.step != last else "", f.what, f.text, f.mark, f.status])
            last = f.step
        return columns(lines)

    def summary(self) -> str:
        count = lambda status: sum(f.status == status for f in self.figures)
        parts = [f"{count(s)} {s.lower()}" for s in (HELD, NOTED, SKIPPED, SHORT, FAILED, LEFT_OUT) if count(s)]
        named = "".join(f"\n  {f.status.lower()}: {f.step}: {f.what}: {f.text}" for f in self.bad())
        return ", ".join(parts) + named


def columns(lines: list, widest: int = 90) -> str:
    """A Markdown table; the first line is its head. Long cells are cut."""
    def cell(text):
        one = " ".join(str(text).split()).replace("|", "/")
        return one if len(one) <= widest else one[:widest - 3] + "..."
    lines = [[cell(c) for c in line] for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    padded = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in lines]
    return "\n".join([padded[0], rule, *padded[1:]])


def mean(values: list) -> float:
    return sum(values) / len(values)


def median(values: list) -> float:
    """The median; of an even number of values the larger of the middle two."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def coarse(values: list, points: int) -> list:
    """The curve as this many means of neighbouring values."""
    points = min(points, len(values))
    cut = [len(values) * i // points for i in range(points + 1)]
    return [mean(values[a:b]) for a, b in zip(cut, cut[1:])]


def mib(n) -> str:
    return f"{n / 2**20:,.1f} MiB"
