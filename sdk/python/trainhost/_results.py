"""Results of plan(), sweep() and search(). Fields are the keys of the JSON objects trainhost.plan/1, trainhost.sweep/1
and trainhost.search/1 (docs/cli.md); `json` is the whole object, `table` the table of the command line. Sizes are bytes
per rank, times seconds."""

from __future__ import annotations

import difflib
import operator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._json import named

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> DataFrame:
    """Errors: ImportError if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas", name="pandas") from error
    return pandas.DataFrame(rows, columns=columns)


def _known(value: str, names: list[str], what: str) -> str:
    """Errors: ValueError with the nearest name."""
    if value not in names:
        near = difflib.get_close_matches(str(value), names, 1)
        raise ValueError(f"unknown {what} {value!r}" + (f"; did you mean {near[0]!r}?" if near else f"; one of {names}"))
    return value


def _bytes(value: Any, name: str) -> int:
    """Accepts every whole number (also of numpy) from 0 to 2^63 - 1. Errors: TypeError, ValueError."""
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected a number of bytes")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number of bytes: int(...)") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} is {number}, expected 0 to 2^63 - 1")
    return number


@dataclass(frozen=True)
class Entry:
    """One line of a memory breakdown, in a report or returned by an estimator.

    bytes: largest size during a step; bytes_at_peak: at the peak of its tier (None: the same). component: "weights",
    "gradients", "optimizer_state", "activations", "logits", ... tier: "device", "pinned", "host", "disk"; "": the memory
    of the trainer. kind: "exact", "upper_bound", "approximation".
    """

    name: str
    bytes: int
    component: str = "activations"
    tier: str = ""
    kind: str = "approximation"
    formula: str = ""
    bytes_at_peak: int | None = None

    def __post_init__(self) -> None:
        _known(self.component, _core.components(), "component")
        _known(self.tier, ["", *_core.tiers()], "tier")
        _known(self.kind, _core.kinds(), "kind")
        object.__setattr__(self, "bytes", _bytes(self.bytes, "bytes"))
        if self.bytes_at_peak is not None:
            object.__setattr__(self, "bytes_at_peak", _bytes(self.bytes_at_peak, "bytes_at_peak"))


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters. trainable: of a run with adapters those of the adapters; active: used per token."""

    total: int
    trainable: int
    active: int
    embedding: int
    per_layer: int


@dataclass(frozen=True)
class Model:
    """parameters: None for a family whose list of tensors is not known."""

    name: str
    family: str
    parameters: Parameters | None


@dataclass(frozen=True)
class Component:
    name: str
    bytes: int
    kind: str


@dataclass(frozen=True)
class Tier:
    """The sum over one memory tier at its peak."""

    tier: str
    total_bytes: int
    components: list[Component]
    peak_at: str = ""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The memory breakdown of one estimator, compared with the limits. too_much: bytes over the limit by tier;
    unjudged: bytes in tiers whose limit is not known. budget_bytes: None if no limit is known."""

    estimator: str
    kind: str
    total_bytes: int
    fits: bool
    verdict: str
    budget_bytes: int | None
    tiers: list[Tier]
    entries: list[Entry] = named("leaves")
    notes: list[str]
    unjudged: dict[str, int]
    too_much: dict[str, int] = field(default_factory=dict)
    host_bytes: int = 0
    host_budget_bytes: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class FailedEstimator:
    estimator: str
    error: str


@dataclass(frozen=True)
class FrameworkAnswer:
    """The same run in a framework; a report has them where only a model was named."""

    framework: str
    recompute: str
    estimator: str
    kind: str
    total_bytes: int
    fits: bool
    verdict: str
    budget_bytes: int | None
    notes: list[str]
    settings: str = ""


@dataclass(frozen=True)
class Change:
    """A single change that makes the run fit. price: "free", "time", "hardware", "result"."""

    settings: str
    set: list[str]
    sentence: str
    price: str
    cost: float
    cost_words: str
    compute_bytes: int
    host_bytes: int
    estimator: str


@dataclass(frozen=True)
class Limit:
    """The largest (of devices: smallest) value with which the run fits; 0: none. binds: what exceeds memory beyond it."""

    what: str
    value: int
    binds: str


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Live bytes of the trainer's memory in one phase of a step."""

    phase: str = named("moment")
    bytes: int
    components: dict[str, int]


@dataclass(frozen=True)
class Report:
    """The plan of one run (JSON trainhost.plan/1). The first estimate decides whether the run fits."""

    model: Model
    framework: str
    backend: str
    assumed: list[str]
    budget_source: str
    estimates: list[Estimate]
    estimator_rule: str
    failed_estimators: list[FailedEstimator]
    framework_answers: list[FrameworkAnswer]
    changes: list[Change]
    limits: list[Limit]
    timeline: list[Phase]
    notes: list[str]
    ranks: int
    mode: str = ""
    host_budget_source: str = ""
    changes_note: str = ""
    json: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    table: str = field(default="", repr=False, compare=False)

    @property
    def estimate(self) -> Estimate:
        """The one that decides."""
        return self.estimates[0]

    @property
    def fits(self) -> bool:
        """No known limit is exceeded; `verdict` also says whether every limit is known."""
        return self.estimate.fits

    @property
    def verdict(self) -> str:
        """ "fits", "fits_device", "not_known" or "does_not_fit"."""
        return self.estimate.verdict

    @property
    def total_bytes(self) -> int:
        return self.estimate.total_bytes

    @property
    def budget_bytes(self) -> int | None:
        return self.estimate.budget_bytes

    def __str__(self) -> str:
        return self.table

    def to_pandas(self) -> DataFrame:
        """One row per estimator and entry. Errors: ImportError without pandas."""
        columns = ["estimator", "tier", "component", "name", "kind", "bytes", "bytes_at_peak", "formula"]
        rows = [{"estimator": e.estimator, **asdict(entry)} for e in self.estimates for entry in e.entries]
        return _frame(rows, columns)


@dataclass(frozen=True)
class Point:
    """One value of a sweep. error: why it makes no valid run; the figures are then 0."""

    x: float
    value: str
    total_bytes: int = 0
    compute_bytes: int = 0
    host_bytes: int = 0
    fits: bool = False
    verdict: str = ""
    components: dict[str, int] = field(default_factory=dict)
    how: str = ""
    error: str = ""


@dataclass(frozen=True)
class Curve:
    """The points of one estimator."""

    estimator: str
    kind: str
    points: list[Point]


@dataclass(frozen=True)
class SweepResult:
    """Memory against one key of the run file (JSON trainhost.sweep/1)."""

    model: str
    run: str
    key: str
    unit: str
    budget_bytes: int | None
    budget_source: str
    curves: list[Curve]
    notes: list[str]
    json: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    table: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return self.table

    def to_pandas(self) -> DataFrame:
        """One row per estimator and point, with a column per component. Errors: ImportError without pandas."""
        columns = ["estimator", "kind", "x", "value", "total_bytes", "compute_bytes", "host_bytes", "fits", "verdict"]
        rows: list[dict[str, Any]] = []
        components: dict[str, None] = {}  # in the order in which they appear
        for curve in self.curves:
            for point in curve.points:
                row = asdict(point) | point.components
                rows.append({"estimator": curve.estimator, "kind": curve.kind, **row})
                components |= dict.fromkeys(point.components)
        return _frame(rows, [*columns, *components, "error"])


@dataclass(frozen=True)
class Layout:
    """A parallel layout: numbers of ranks, batch and recomputation, memory per device, seconds of a step. time_from:
    "simulation" (of trainhost's step program) or "closed form". utilization: model FLOP/s over the peak rate.
    settings: for the keys of plan()."""

    tensor: int
    sequence: bool
    pipeline: int
    interleave: int
    data: int
    context: int
    expert: int
    zero: int
    micro_batch: int
    grad_accum: int
    recompute: str
    recompute_every: int
    offload: str
    device_bytes: int
    host_bytes: int
    verdict: str
    step_seconds: float
    time_from: str
    closed_form_seconds: float
    tokens_per_second: float
    utilization: float
    seconds: dict[str, float]
    settings: list[str]


@dataclass(frozen=True)
class SearchResult:
    """Parallel layouts of a model on a number of devices (JSON trainhost.search/1). best: fastest first; empty if none
    fits. pareto: least memory first, each faster than all before it."""

    model: str
    device: str
    devices: int
    run: str
    budget_bytes: int
    host_budget_bytes: int | None
    global_batch: int
    seq_len: int
    layouts: int
    evaluated: int
    fitting: int
    simulated: int
    seconds: float
    best: list[Layout]
    pareto: list[Layout]
    assumptions: list[str]
    notes: list[str]
    json: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    table: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return self.table

    def to_pandas(self) -> DataFrame:
        """One row per layout of `best`. Errors: ImportError without pandas."""
        columns = [name for name in Layout.__dataclass_fields__ if name not in ("seconds", "settings")]
        return _frame([asdict(layout) for layout in self.best], columns)
