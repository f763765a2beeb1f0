"""trainhost: predicts the memory of an LLM training run to the byte, trains it, and compares.

    report = trainhost.plan(model="llama-3-8b", device="h100-80gb", seq_len=4096)
    print(report.verdict, report.total_bytes)

Names are imported when they are used first, so that the command `trainhost` does not load the module.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import version as __version__
    from ._errors import BackendError, Error, EstimatorError, PluginError, UsageError
    from ._estimators import ModelSpec, RunSpec, TrainerTraits, estimator, remove_estimator
    from ._plan import plan, search, sweep
    from ._results import (
        Change,
        Component,
        Curve,
        Entry,
        Estimate,
        FailedEstimator,
        FrameworkAnswer,
        Layout,
        Limit,
        Model,
        Parameters,
        Phase,
        Point,
        Report,
        SearchResult,
        SweepResult,
        Tier,
    )
    from ._runs import Evaluation, Run, Step, read_run

_NAMES = {
    "_errors": ("BackendError", "Error", "EstimatorError", "PluginError", "UsageError"),
    "_estimators": ("ModelSpec", "RunSpec", "TrainerTraits", "estimator", "remove_estimator"),
    "_plan": ("plan", "search", "sweep"),
    "_results": (
        "Change", "Component", "Curve", "Entry", "Estimate", "FailedEstimator", "FrameworkAnswer", "Layout", "Limit",
        "Model", "Parameters", "Phase", "Point", "Report", "SearchResult", "SweepResult", "Tier",
    ),
    "_runs": ("Evaluation", "Run", "Step", "read_run"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BackendError", "Change", "Component", "Curve", "Entry", "Error", "Estimate", "EstimatorError", "Evaluation",
    "FailedEstimator", "FrameworkAnswer", "Layout", "Limit", "Model", "ModelSpec", "Parameters", "Phase",
    "PluginError", "Point", "Report", "Run", "RunSpec", "SearchResult", "Step", "SweepResult", "Tier",
    "TrainerTraits", "UsageError", "__version__", "estimator", "plan", "read_run", "remove_estimator", "search",
    "sweep",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("._core", __name__).version
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'trainhost' has no attribute '{name}'")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
