"""The result of one run of one column."""
from dataclasses import asdict, dataclass, field
from typing import Optional


class NotMeasured(Exception):
    """A column cannot be measured here; the reason is shown in its cell. Not an error of the whole run."""


@dataclass
class Sample:
    row: str
    column: str
    round: int
    tokens: int                   # per step
    step_ms: list                 # every timed step, without warm-up
    peak_bytes: int
    parameters: int
    command: list
    environment: dict
    first_loss: Optional[float] = None
    detail: dict = field(default_factory=dict)

    def tokens_per_s(self, statistic: str) -> float:
        """Tokens per second of the best or the median step; of two middle steps the slower counts."""
        ordered = sorted(self.step_ms)
        ms = (
            ordered[0]
            if statistic == "best"
            else ordered[(len(ordered) - 1) // 2 if len(ordered) % 2 else len(ordered) // 2]
        )
        return self.tokens / ms * 1e3

    def as_json(self) -> dict:
        return asdict(self)
