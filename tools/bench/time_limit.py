"""Divides the time limit of a table among its rows, so that the table ends in time on slow machines too."""
import time

from rows import ASSUMED_FLOPS

LEAST_STEPS = 5  # steps of a column and round that are always computed: two for warm-up, three that count


def expected_seconds(row, seconds: float) -> float:
    """Time of one column and round, only to compare rows with each other."""
    return max(seconds, LEAST_STEPS * row.flops / ASSUMED_FLOPS)


class TimeLimit:
    """minutes: of the whole table; 0 = no limit. A row gets a share of the time that earlier rows have left."""

    TRIES = 1 / 3  # largest part of a row's time for trying settings of peers

    def __init__(self, rows: list, minutes: float, seconds: float, clock=time.monotonic):
        self.clock = clock
        self.end = clock() + 60 * minutes if minutes > 0 else float("inf")
        self.left = [(r.name, expected_seconds(r, seconds)) for r in rows]
        self.end_of_row = self.end_of_tries = self.end

    def begin_row(self, row):
        now, later = self.clock(), sum(weight for _, weight in self.left)
        share = next(weight for name, weight in self.left if name == row.name)
        self.left = [(name, weight) for name, weight in self.left if name != row.name]
        if self.end == float("inf"):
            return
        time_of_row = max(0.0, self.end - now) * share / later
        self.end_of_row, self.end_of_tries = now + time_of_row, now + time_of_row * self.TRIES

    def may_try(self) -> bool:
        """Whether another setting of a peer may be tried."""
        return self.clock() < self.end_of_tries

    def may_measure(self, round_: int, longest: float) -> bool:
        """Whether a round that takes up to `longest` seconds ends in time. The first round is always measured."""
        return round_ == 0 or self.clock() + longest <= self.end_of_row
