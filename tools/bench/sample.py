"""What one run of one column gave."""
from dataclasses import asdict, dataclass, field
from typing import Optional


class NotMeasured(Exception):
    """A column that cannot be measured here: the reason becomes its cell. Never an error of the whole run."""


@dataclass
class Sample:
    row: str
    column: str
    round: int
    tokens: int                   # of one step
    step_ms: list                 # every timed step, warm-up left out
    peak_bytes: int
    parameters: int
    command: list
    environment: dict
    first_loss: Optional[float] = None
    detail: dict = field(default_factory=dict)

    def tokens_per_s(self, statistic: str) -> float:
        """From the best step, or from the median one (the lower of the two in the middle)."""
        ordered = sorted(self.step_ms)
        ms = ordered[0] if statistic == "best" else ordered[(len(ordered) - 1) // 2 if len(ordered) % 2 else len(ordered) // 2]
        return self.tokens / ms * 1e3

    def as_json(self) -> dict:
        return asdict(self)
