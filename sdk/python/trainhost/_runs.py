"""read_run(): what a run has written to its folder (output.dir)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import Error, UsageError
from ._json import from_json
from ._results import Report, _frame

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]


@dataclass(frozen=True)
class Step:
    """One optimizer step, counted from 1. loss: nats, mean over the tokens of the step; ms: in the trainer; time:
    when its line was written, UTC in ISO 8601, "" where an older version wrote it."""

    step: int
    loss: float | None
    grad_norm: float | None
    lr: float
    tokens: int
    ms: float
    tokens_per_s: float
    time: str = ""


@dataclass(frozen=True)
class Evaluation:
    """The validation loss after a step, in nats."""

    step: int
    loss: float | None
    tokens: int


@dataclass(frozen=True)
class Run:
    """A run as metrics.jsonl, status.json, summary.json and run.toml describe it. status: "running", "finished",
    "stopped", "failed", ...; plan: of the run before its first step; summary: {} until it is finished; events: every
    line of metrics.jsonl; run_file: every key that had a value, as TOML."""

    folder: Path
    status: str
    plan: Report | None
    steps: list[Step]
    evaluations: list[Evaluation]
    summary: dict[str, Any] = field(repr=False)
    events: list[dict[str, Any]] = field(repr=False)
    run_file: str = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """One row per step; validation_loss is that of the evaluation after the step, or not a number. Errors:
        ImportError without pandas."""
        validation = {e.step: e.loss for e in self.evaluations}
        rows = [{**asdict(step), "validation_loss": validation.get(step.step)} for step in self.steps]
        return _frame(rows, [*Step.__dataclass_fields__, "validation_loss"])


def _read(file: Path) -> str:
    """"" if there is no such file. Errors: Error if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(f"it cannot be read: {reason}", file=str(file)) from error


def _object(file: Path, text: str, line: int | None = None) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at = line if line is not None else error.lineno
        raise Error(f"it is no JSON: {error.msg}", file=str(file), line=at, column=error.colno) from error
    if not isinstance(value, dict):
        raise Error("it is no JSON object", file=str(file), line=line)
    return value


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read the folder of a run that is finished or still running.

    A last line of metrics.jsonl that is not complete yet is left out. Errors: UsageError if the folder has no run;
    Error with file and line if a file of it cannot be read.
    """
    path = Path(folder)
    metrics = path / "metrics.jsonl"
    if not metrics.is_file():
        why = "has no metrics.jsonl: it is not the folder of a run" if path.is_dir() else "is not a folder"
        raise UsageError(f"{path} {why}", "give the output.dir of a run, for example runs/builtin", exit_code=2)
    lines = _read(metrics).split("\n")[:-1]  # what follows the last end of line is not complete
    events = [_object(metrics, text, number) for number, text in enumerate(lines, 1)]
    texts = {name: _read(path / name) for name in ("status.json", "summary.json", "run.toml")}
    status = _object(path / "status.json", texts["status.json"]) if texts["status.json"] else {}
    plans = [event["plan"] for event in events if event.get("event") == "start" and "plan" in event]
    return Run(
        folder=path,
        status=str(status.get("state", "")),
        plan=from_json(Report, plans[-1], json=plans[-1]) if plans else None,
        steps=[from_json(Step, event) for event in events if event.get("event") == "step"],
        evaluations=[from_json(Evaluation, event) for event in events if event.get("event") == "eval"],
        summary=_object(path / "summary.json", texts["summary.json"]) if texts["summary.json"] else {},
        events=events,
        run_file=texts["run.toml"],
    )
