"""Estimators that are functions of this process, to try a formula before it becomes a plugin (sdk/README.md)."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ._errors import EstimatorError, UsageError
from ._json import from_json
from ._results import Entry


@dataclass(frozen=True)
class ModelSpec:
    """The model of a run. intermediate: width of the MLP; sliding_window: 0 for none; tied: the LM head is the
    embedding; parameters: None for a family that cannot be trained; config: the config.json, {} for a preset."""

    family: str
    name: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_positions: int
    sliding_window: int
    tied: bool
    parameters: int | None
    config: dict[str, Any]


@dataclass(frozen=True)
class RunSpec:
    """One run. micro_batch: sequences; seq_len: tokens per sequence; accumulate: gradient accumulation steps. weight,
    grad, master, moment, compute: number types ("f32", "bf16", "none", ...). data to expert: ranks of each kind of
    parallelism; zero: ZeRO stage. Budgets in bytes, 0: the free memory."""

    mode: str
    micro_batch: int
    seq_len: int
    accumulate: int
    weight: str
    grad: str
    master: str
    moment: str
    compute: str
    optimizer: str
    recompute: str
    data: int
    tensor: int
    sequence: bool
    pipeline: int
    context: int
    expert: int
    zero: int
    lora_rank: int
    device_budget: int
    host_budget: int


@dataclass(frozen=True)
class TrainerTraits:
    """The trainer that the run is planned for; trainer is "" where the plan is for a device in general. tier: memory of
    the trainer ("device", "host"); alignment of buffers and workspace in bytes; head_chunk_tokens: rows of logits in
    memory, 0 for the whole micro-batch; runtime_bytes: of the device, outside the plan."""

    trainer: str
    tier: str
    mode: str
    alignment: int
    threads: int
    head_chunk_tokens: int
    runtime_bytes: int
    workspace_bytes: int


Function = Callable[[ModelSpec, RunSpec, TrainerTraits], Iterable[Entry]]

_registered: dict[str, tuple[list[str], Callable[[str], str]]] = {}


def _failure(name: str, function: Function, error: Exception) -> EstimatorError:
    """With the line of the function where the exception was raised or passed."""
    file, line = None, None
    for frame in traceback.extract_tb(error.__traceback__)[1:]:  # the first one is of this file
        if file is None or frame.filename == function.__code__.co_filename:
            file, line = frame.filename, frame.lineno
    message = f"the estimator '{name}' raised {type(error).__name__}: {error}"
    return EstimatorError(message, "the exception is the __cause__ of this one", file, line)


def _wrap(name: str, function: Function) -> Callable[[str], str]:
    """From the JSON of the C++ code to the function, and from its entries to JSON."""

    def answer(question: str) -> str:
        asked = json.loads(question)
        model, run = from_json(ModelSpec, asked["model"]), from_json(RunSpec, asked["run"])
        trainer = from_json(TrainerTraits, asked["trainer"])
        try:
            entries = list(function(model, run, trainer))
            for entry in entries:
                if not isinstance(entry, Entry):
                    raise TypeError(f"it returned {entry!r}, expected trainhost.Entry")
            return json.dumps([asdict(entry) for entry in entries])
        except Exception as error:
            raise _failure(name, function, error) from error

    return answer


def estimator(
    families: Iterable[str] = (), *, name: str = ""
) -> Callable[[Callable[[ModelSpec, RunSpec, TrainerTraits], Iterable[Entry]]],
              Callable[[ModelSpec, RunSpec, TrainerTraits], Iterable[Entry]]]:  # fmt: skip
    """Register a function of this process as an estimator.

        @trainhost.estimator(families=["llama"])
        def mine(model, run, trainer):
            return [trainhost.Entry("weights", 2 * model.parameters, component="weights")]

        trainhost.plan(model="llama-3-8b", estimator="mine")

    families: model families that it plans; none: every family. name: default is that of the function; a registered or
    installed estimator of the same name is replaced. It answers where it is named, with estimator="all", and where no
    installed estimator plans the run. Its exceptions become EstimatorError. Errors: UsageError for an invalid name.
    """
    if isinstance(families, str):
        raise UsageError(f"families is '{families}', expected a list", f'families=["{families}"]', exit_code=2)
    listed = list(families)

    def register(function: Function) -> Function:
        chosen = name or function.__name__
        if chosen in ("auto", "all") or not chosen or "," in chosen:
            raise UsageError(f"'{chosen}' cannot be the name of an estimator", "give another name=", exit_code=2)
        _registered[chosen] = (listed, _wrap(chosen, function))
        return function

    return register


def remove_estimator(name: str) -> None:
    """Errors: UsageError if no function is registered by that name."""
    if _registered.pop(name, None) is None:
        raise UsageError(f"no estimator '{name}' is registered", f"registered: {', '.join(_registered)}", exit_code=2)


def registered() -> list[tuple[str, list[str], Callable[[str], str]]]:
    return [(name, families, function) for name, (families, function) in _registered.items()]
