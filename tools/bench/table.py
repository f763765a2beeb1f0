"""Builds the table from samples: arithmetic and text only, no clock, no files."""
import shlex

from rows import Row

MISSING = "-"


class Cell:
    """All samples of one column and row, or the reason why there are none."""

    def __init__(self, samples: list, reason: str = ""):
        self.samples, self.reason = samples, reason

    def rate(self, statistic: str):
        """Tokens per second of the best round; None without samples."""
        return max((s.tokens_per_s(statistic) for s in self.samples), default=None)

    def spread(self, statistic: str):
        """Difference of the best and the slowest round, relative to the best."""
        rates = [s.tokens_per_s(statistic) for s in self.samples]
        return (max(rates) - min(rates)) / max(rates) if rates else None

    def fma_peak(self):
        """FLOP/s of the FMA loop: the highest, because other work can only slow it."""
        return max((s.detail["fma_peak"] for s in self.samples if s.detail.get("fma_peak")), default=None)

    def peak_bytes(self):
        """The largest peak of all rounds."""
        return max((s.peak_bytes for s in self.samples), default=None)


def ratio(a, b):
    return a / b if a is not None and b else None


def at_least(value, target) -> bool:
    return value is not None and value >= target


def at_most(value, target) -> bool:
    return value is not None and value <= target


def with_target(value, target, holds, unit: str) -> str:
    """"0.93 (met: >= 0.92)"."""
    if value is None:
        return MISSING
    text = f"{value:.2f}{unit}" if unit == "" else f"{value:.1f}{unit}"
    if target is None:
        return text
    sign = ">=" if holds is at_least else "<="
    return f"{text} ({'met' if holds(value, target) else 'MISSED'}: {sign} {target:g})"


class Table:
    """Rows of text against models. `cells` maps (row name, column name) to a Cell."""

    def __init__(self, rows: list, cells: dict, statistic: str):
        self.rows, self.cells, self.statistic = rows, cells, statistic
        self.lines = [["", *(r.name for r in rows)]]

    def cell(self, row: Row, column: str) -> Cell:
        return self.cells.get((row.name, column)) or Cell([], MISSING)

    def rate(self, row: Row, column: str):
        return self.cell(row, column).rate(self.statistic)

    def fma_peak(self, column: str):
        """That of the machine, so the highest of all rows."""
        return max((p for r in self.rows if (p := self.cell(r, column).fma_peak())), default=None)

    def add_fma_peak(self, column: str):
        peak = self.fma_peak(column)
        self.add("FMA peak, GFLOP/s", lambda row: MISSING if peak is None else f"{peak / 1e9:,.0f}")

    def add_part_of_peak(self, column: str, peak_of: str):
        """FLOP/s of a step over the FMA peak, which `peak_of` has measured with the same threads."""
        peak = self.fma_peak(peak_of)

        def flops(row):
            rate = self.rate(row, column)
            return None if rate is None else rate * row.flops / row.tokens

        self.add(f"{column} / FMA peak", lambda row: with_target(ratio(flops(row), peak), None, at_least, ""))

    def add(self, label: str, text_of):
        """Adds a line unless it is empty for every row."""
        texts = [text_of(r) for r in self.rows]
        if any(t != MISSING for t in texts):
            self.lines.append([label, *texts])

    def add_rate(self, column: str):
        def text(row):
            c = self.cell(row, column)
            if not c.samples:
                return c.reason
            spread = f" (spread {c.spread(self.statistic):.0%})" if len(c.samples) > 1 else ""
            return f"{c.rate(self.statistic):,.0f}{spread}"
        self.add(f"{column}, tokens/s", text)

    def add_ratio(self, label: str, over: str, under: str, target_of_row=lambda row: None, unit: str = ""):
        self.add(
            label,
            lambda r: with_target(ratio(self.rate(r, over), self.rate(r, under)), target_of_row(r), at_least, unit),
        )

    def add_peak(self, column: str):
        def text(row):
            peak = self.cell(row, column).peak_bytes()
            return MISSING if peak is None else f"{peak / 2**20:,.0f}"
        self.add(f"{column}, peak MiB", text)

    def add_peak_ratio(self, label: str, over: str, under: str, target_of_row=lambda row: None):
        self.add(label, lambda r: with_target(ratio(self.cell(r, over).peak_bytes(), self.cell(r, under).peak_bytes()),
                                         target_of_row(r), at_most, ""))

    def markdown(self) -> str:
        widths = [max(len(line[i]) for line in self.lines) for i in range(len(self.lines[0]))]
        def text(line):
            first, *rest = (t.ljust(w) if i == 0 else t.rjust(w) for i, (t, w) in enumerate(zip(line, widths)))
            return "| " + " | ".join([first, *rest]) + " |"
        rule = "|" + "|".join(("-" * (w + 2)) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
        return "\n".join([text(self.lines[0]), rule, *map(text, self.lines[1:])])


def same_model(row: Row, samples: list) -> list:
    """Differences between the work of the columns, as texts; empty if all did the same work."""
    wrong = []
    for s in samples:
        if s.parameters != row.parameters:
            wrong.append(f"{row.name}: {s.column} has {s.parameters:,} parameters, not {row.parameters:,}")
        if s.tokens != row.tokens:
            wrong.append(f"{row.name}: {s.column} takes {s.tokens:,} tokens per step, not {row.tokens:,}")
    losses = {s.column: s.first_loss for s in samples if s.first_loss is not None}
    if losses and max(losses.values()) > 1.05 * min(losses.values()):
        wrong.append(f"{row.name}: first losses differ: " + ", ".join(f"{c} {l:.3f}" for c, l in losses.items()))
    return wrong


def target_of(name: str):
    return lambda row: getattr(row.targets, name) if row.targets else None


def build(rows: list, cells: dict, peers: list, statistic: str) -> Table:
    """`peers`: (column name, precision, whether the targets refer to it)."""
    t = Table(rows, cells, statistic)
    t.add("parameters", lambda r: f"{r.parameters:,}")
    t.add("sequences x tokens per step", lambda r: f"{r.batch} x {r.seq}")
    t.add_fma_peak("ours fp32")
    t.add_rate("ours fp32")
    t.add_part_of_peak("ours fp32", "ours fp32")
    t.add_rate("ceiling")
    t.add_part_of_peak("ceiling", "ours fp32")
    t.add_ratio("ours / ceiling", "ours fp32", "ceiling", target_of("ceiling"))
    t.add_rate("ours bf16")
    t.add_part_of_peak("ours bf16", "ours fp32")
    t.add_ratio("ours bf16 / fp32", "ours bf16", "ours fp32", unit="x")
    t.add_rate("ours fp32, 1 thread")
    t.add_part_of_peak("ours fp32, 1 thread", "ours fp32, 1 thread")
    t.add_ratio("ours, all threads / 1", "ours fp32", "ours fp32, 1 thread")
    t.add_ratio("ceiling, all threads / 1", "ceiling", "ceiling, 1 thread")
    for column, precision, has_targets in peers:
        none = lambda row: None
        t.add_rate(column)
        t.add_part_of_peak(column, "ours fp32")
        t.add_ratio(
            f"ours {precision} / {column}", f"ours {precision}", column, target_of("peer") if has_targets else none, "x"
        )
        if precision != "fp32":
            t.add_ratio(f"ours fp32 / {column}", "ours fp32", column, unit="x")
    t.add_peak("ours fp32")
    t.add_peak("ours bf16")
    for column, precision, has_targets in peers:
        t.add_peak(column)
        t.add_peak_ratio(
            f"ours {precision} / {column}", f"ours {precision}", column, target_of("memory") if has_targets else none
        )
    return t


def verdicts(rows: list, cells: dict, peer: str, statistic: str) -> list:
    """One tuple per target: (text, value, target, True or False, or None if not measured)."""
    t, found = Table(rows, cells, statistic), []
    for r in (r for r in rows if r.targets):
        checks = [
            ("ours / ceiling", ratio(t.rate(r, "ours fp32"), t.rate(r, "ceiling")), r.targets.ceiling, at_least),
            (
                f"ours / {peer or 'torch 1.13'}",
                ratio(t.rate(r, "ours fp32"), t.rate(r, peer)),
                r.targets.peer,
                at_least,
            ),
            (
                "peak memory",
                ratio(t.cell(r, "ours fp32").peak_bytes(), t.cell(r, peer).peak_bytes()),
                r.targets.memory,
                at_most,
            ),
        ]
        found += [(f"{r.name}: {what}", v, m, None if v is None else holds(v, m)) for what, v, m, holds in checks]
    return found


def shell_words(environment: dict, words: list) -> str:
    """A line that a shell runs as it was run, clean environment apart."""
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in environment.items()), *map(shlex.quote, words)])
