"""From samples to the table: pure arithmetic and text, no clock, no files."""
import shlex

from rows import Row

MISSING = "-"


class Cell:
    """Everything that one column gave for one row, over all rounds; or the reason why it gave nothing."""

    def __init__(self, samples: list, reason: str = ""):
        self.samples, self.reason = samples, reason

    def rate(self, statistic: str):
        """Tokens a second of the best round; None where nothing was measured."""
        return max((s.tokens_per_s(statistic) for s in self.samples), default=None)

    def spread(self, statistic: str):
        """How far the slowest round lies below the best one, as a part of the best."""
        rates = [s.tokens_per_s(statistic) for s in self.samples]
        return (max(rates) - min(rates)) / max(rates) if rates else None

    def peak_bytes(self):
        """Of the round that took most: memory has no lucky rounds."""
        return max((s.peak_bytes for s in self.samples), default=None)


def ratio(a, b):
    return a / b if a is not None and b else None


def at_least(value, mark) -> bool:
    return value is not None and value >= mark


def at_most(value, mark) -> bool:
    return value is not None and value <= mark


def judged(value, mark, holds, unit: str) -> str:
    """"0.93 (met: >= 0.92)"."""
    if value is None:
        return MISSING
    text = f"{value:.2f}{unit}" if unit == "" else f"{value:.1f}{unit}"
    if mark is None:
        return text
    sign = ">=" if holds is at_least else "<="
    return f"{text} ({'met' if holds(value, mark) else 'MISSED'}: {sign} {mark:g})"


class Table:
    """Rows of text against models. `cells` maps (row name, column name) to a Cell."""

    def __init__(self, rows: list, cells: dict, statistic: str):
        self.rows, self.cells, self.statistic = rows, cells, statistic
        self.lines = [["", *(r.name for r in rows)]]

    def cell(self, row: Row, column: str) -> Cell:
        return self.cells.get((row.name, column)) or Cell([], MISSING)

    def rate(self, row: Row, column: str):
        return self.cell(row, column).rate(self.statistic)

    def add(self, label: str, text_of):
        """One line; left out where no row has anything to say."""
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

    def add_ratio(self, label: str, over: str, under: str, mark_of=lambda row: None, unit: str = ""):
        self.add(label, lambda r: judged(ratio(self.rate(r, over), self.rate(r, under)), mark_of(r), at_least, unit))

    def add_peak(self, column: str):
        def text(row):
            peak = self.cell(row, column).peak_bytes()
            return MISSING if peak is None else f"{peak / 2**20:,.0f}"
        self.add(f"{column}, peak MiB", text)

    def add_peak_ratio(self, label: str, over: str, under: str, mark_of=lambda row: None):
        self.add(label, lambda r: judged(ratio(self.cell(r, over).peak_bytes(), self.cell(r, under).peak_bytes()),
                                         mark_of(r), at_most, ""))

    def markdown(self) -> str:
        widths = [max(len(line[i]) for line in self.lines) for i in range(len(self.lines[0]))]
        def text(line):
            first, *rest = (t.ljust(w) if i == 0 else t.rjust(w) for i, (t, w) in enumerate(zip(line, widths)))
            return "| " + " | ".join([first, *rest]) + " |"
        rule = "|" + "|".join(("-" * (w + 2)) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
        return "\n".join([text(self.lines[0]), rule, *map(text, self.lines[1:])])


def same_model(row: Row, samples: list) -> list:
    """What contradicts that every column did the same work: texts, empty when all is well."""
    wrong = []
    for s in samples:
        if s.parameters != row.parameters:
            wrong.append(f"{row.name}: {s.column} has {s.parameters:,} parameters, not {row.parameters:,}")
        if s.tokens != row.tokens:
            wrong.append(f"{row.name}: {s.column} takes {s.tokens:,} tokens a step, not {row.tokens:,}")
    losses = {s.column: s.first_loss for s in samples if s.first_loss is not None}
    if losses and max(losses.values()) > 1.05 * min(losses.values()):
        wrong.append(f"{row.name}: first losses differ: " + ", ".join(f"{c} {l:.3f}" for c, l in losses.items()))
    return wrong


def mark(name: str):
    return lambda row: getattr(row.marks, name) if row.marks else None


def build(rows: list, cells: dict, peers: list, statistic: str) -> Table:
    """`peers`: (column name, precision, whether the marks are for it)."""
    t = Table(rows, cells, statistic)
    t.add("parameters", lambda r: f"{r.parameters:,}")
    t.add("a step: sequences x tokens", lambda r: f"{r.batch} x {r.seq}")
    t.add_rate("ours fp32")
    t.add_rate("ceiling")
    t.add_ratio("ours / ceiling", "ours fp32", "ceiling", mark("ceiling"))
    t.add_rate("ours bf16")
    t.add_ratio("ours bf16 / fp32", "ours bf16", "ours fp32", unit="x")
    t.add_rate("ours fp32, 1 thread")
    t.add_ratio("ours, all threads / 1", "ours fp32", "ours fp32, 1 thread")
    t.add_ratio("ceiling, all threads / 1", "ceiling", "ceiling, 1 thread")
    for column, precision, marked in peers:
        none = lambda row: None
        t.add_rate(column)
        t.add_ratio(f"ours {precision} / {column}", f"ours {precision}", column, mark("peer") if marked else none, "x")
        if precision != "fp32":
            t.add_ratio(f"ours fp32 / {column}", "ours fp32", column, unit="x")
    t.add_peak("ours fp32")
    t.add_peak("ours bf16")
    for column, precision, marked in peers:
        t.add_peak(column)
        t.add_peak_ratio(f"ours {precision} / {column}", f"ours {precision}", column, mark("memory") if marked else none)
    return t


def verdicts(rows: list, cells: dict, peer: str, statistic: str) -> list:
    """One line a mark: (text, True, False or None where it could not be judged)."""
    t, found = Table(rows, cells, statistic), []
    for r in (r for r in rows if r.marks):
        checks = [("ours / ceiling", ratio(t.rate(r, "ours fp32"), t.rate(r, "ceiling")), r.marks.ceiling, at_least),
                  (f"ours / {peer or 'torch 1.13'}", ratio(t.rate(r, "ours fp32"), t.rate(r, peer)), r.marks.peer, at_least),
                  ("peak memory", ratio(t.cell(r, "ours fp32").peak_bytes(), t.cell(r, peer).peak_bytes()), r.marks.memory, at_most)]
        found += [(f"{r.name}: {what}", v, m, None if v is None else holds(v, m)) for what, v, m, holds in checks]
    return found


def shell_words(environment: dict, words: list) -> str:
    """A line that a shell runs as it was run, clean environment apart."""
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in environment.items()), *map(shlex.quote, words)])
