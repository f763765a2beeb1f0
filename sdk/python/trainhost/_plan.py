"""plan(), sweep() and search(): the commands of the same names, in this process."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from . import _core, _estimators, _program
from ._errors import UsageError
from ._json import from_json
from ._results import Report, SearchResult, SweepResult

Path = str | os.PathLike[str]
Value = bool | int | float | Path | Sequence[int | float | Path] | None

_ready = False


def _toml(value: Value) -> str:
    """A value of the run file as TOML. A text stays as it is: the reader of the run file accepts it without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(json.dumps(os.fspath(v)) if isinstance(v, (str, os.PathLike)) else _toml(v)
                               for v in value) + "]"  # fmt: skip
    return str(value)


def _key(name: str) -> str:
    """The key of the run file that an argument means: "train.micro_batch", "train_micro_batch" or "micro_batch".
    A name with a dot that is no key stays as it is: plugins have keys of their own. Errors: UsageError if several keys
    end with it, or none."""
    keys = _core.run_file_keys()
    if name in keys:
        return name
    for same in ([k for k in keys if k.replace(".", "_") == name], [k for k in keys if k.endswith(f".{name}")]):
        if len(same) > 1:
            raise UsageError(f"{name} is the end of several keys: {', '.join(same)}",
                             f"write {' or '.join(k.replace('.', '_') for k in same)}", exit_code=2)  # fmt: skip
        if same:
            return same[0]
    if "." in name:
        return name
    known = [*_Options.__annotations__, *(part for k in keys for part in (k.split(".")[-1], k.replace(".", "_")))]
    near = difflib.get_close_matches(name, known, 1)
    raise UsageError(f"unknown key '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""),
                     "docs/run-file.md lists the keys", exit_code=2)  # fmt: skip


def _with_adapters(keys: dict[str, Value]) -> dict[str, Value]:
    """The keys of --lora and --qlora in place of lora=True and qlora=True. Keys that are given win."""
    keys = dict(keys)
    lora, qlora = keys.pop("lora", None), keys.pop("qlora", None)
    usual: dict[str, Value] = {}
    if lora or qlora:
        usual |= {"lora.rank": 16, "lora.alpha": 32, "lora.targets": "all-linear"}
    if qlora:
        usual |= {"lora.base": "nf4", "lora.double_quant": True}
    given = {_key(name) for name in keys}
    return keys | {key: value for key, value in usual.items() if key not in given}


class _Options(TypedDict, total=False):
    model: Path | None
    run_file: Path | None
    from_files: Sequence[Path]
    device: str
    budget: str
    host_budget: str
    framework: str
    safe: bool
    backend: str
    estimator: str | Sequence[str]
    plugin_path: Sequence[Path]


def _request(options: _Options, keys: dict[str, Value]) -> _core.Request:
    request = _core.Request()
    request.model = os.fspath(options.get("model") or "")
    request.run_file = os.fspath(options.get("run_file") or "")
    request.from_files = [os.fspath(file) for file in options.get("from_files", ())]
    request.plugin_path = [os.fspath(folder) for folder in options.get("plugin_path", ())]
    estimator = options.get("estimator", "")
    request.estimators = estimator if isinstance(estimator, str) else ",".join(estimator)
    request.device, request.backend = options.get("device", ""), options.get("backend", "")
    # A number lacks its unit, which the reader of sizes says.
    request.budget, request.host_budget = str(options.get("budget", "")), str(options.get("host_budget", ""))
    request.framework, request.safe = options.get("framework", ""), options.get("safe", False)
    settings = _with_adapters(keys).items()
    request.settings = [f"{_key(name)}={_toml(value)}" for name, value in settings if value is not None]
    return request


def _ask(
    call: Callable[[_core.Request, list[tuple[str, list[str], Callable[[str], str]]]], tuple[str, str]],
    request: _core.Request,
) -> tuple[dict[str, Any], str]:
    global _ready
    if not _ready:
        _core.set_program(_program.program())
        _ready = True
    text, table = call(request, _estimators.registered())
    return json.loads(text), table


def plan(
    model: Path | None = None,
    *,
    device: str = "",
    devices: int = 0,
    budget: str = "",
    host_budget: str = "",
    estimator: str | Sequence[str] = "",
    framework: str = "",
    safe: bool = False,
    limits: bool = False,
    backend: str = "",
    run_file: Path | None = None,
    from_files: Sequence[Path] = (),
    plugin_path: Sequence[Path] = (),
    **keys: Value,
) -> Report:
    """Predict the memory of a run and whether it fits, like the command `trainhost plan`.

    model: a preset, a config.json or a folder with one. run_file: a run file instead of a model; neither: the built-in
    run. from_files: files of another framework. device: a device preset. devices: their number, which
    tensor, pipeline, context and data ranks share; 0: as many as the run has ranks. budget, host_budget: "24GiB".
    estimator: names of estimators; "auto", "all". framework: whose training step is planned. safe: judge by upper
    bounds. limits: also find the largest batch and the longest sequence. keys: keys of the run file, as
    "train.micro_batch" (in **{...}), train_micro_batch, or micro_batch where only one key ends so; they win over the
    run file. lora=True and qlora=True: adapters of rank 16, as --lora and --qlora.

    Errors: UsageError for a wrong argument or file; PluginError if an estimator fails, EstimatorError if it is a
    function of this process. A run that does not fit is no error: Report.fits.
    """
    options: _Options = {
        "model": model, "run_file": run_file, "from_files": from_files, "device": device, "budget": budget,
        "host_budget": host_budget, "framework": framework, "safe": safe, "backend": backend, "estimator": estimator,
        "plugin_path": plugin_path,
    }  # fmt: skip
    request = _request(options, keys)
    request.devices = devices
    request.limits = limits
    data, table = _ask(_core.plan, request)
    return from_json(Report, data, json=data, table=table)


def sweep(
    key: str,
    values: str | Sequence[int | float | str],
    *,
    model: Path | None = None,
    device: str = "",
    devices: int = 0,
    budget: str = "",
    host_budget: str = "",
    estimator: str | Sequence[str] = "",
    framework: str = "",
    safe: bool = False,
    backend: str = "",
    run_file: Path | None = None,
    from_files: Sequence[Path] = (),
    plugin_path: Sequence[Path] = (),
    **keys: Value,
) -> SweepResult:
    """Plan a run at every value of one key of the run file, like the command `trainhost sweep`.

    values: a list, or a range: "512..16384" doubles, "512..4096+512" adds, "1..81*3" multiplies. The other arguments,
    and the errors, are those of plan(). A value that makes no valid run is a point with an error.
    """
    options: _Options = {
        "model": model, "run_file": run_file, "from_files": from_files, "device": device, "budget": budget,
        "host_budget": host_budget, "framework": framework, "safe": safe, "backend": backend, "estimator": estimator,
        "plugin_path": plugin_path,
    }  # fmt: skip
    request = _request(options, keys)
    request.devices = devices
    request.over = f"{_key(key)}={values if isinstance(values, str) else ','.join(map(str, values))}"
    data, table = _ask(_core.sweep, request)
    return from_json(SweepResult, data, json=data, table=table)


def search(
    model: Path | None = None,
    *,
    device: str = "",
    devices: int = 0,
    global_batch: int = 0,
    budget: str = "",
    host_budget: str = "",
    top: int = 10,
    threads: int = 0,
    every: bool = False,
    run_file: Path | None = None,
    from_files: Sequence[Path] = (),
    **keys: Value,
) -> SearchResult:
    """Rank the parallel layouts of a model on a number of devices, like the command `trainhost search`.

    devices: 0 means as many as the run file has ranks. global_batch: sequences per optimizer step; 0 means as in the
    run file. top: layouts to list. threads: 0 means one per core. every: also evaluate what pruning would skip. A key
    of the layout that is given (tensor=8) is not searched. Errors: UsageError.
    """
    options: _Options = {
        "model": model, "run_file": run_file, "from_files": from_files, "device": device, "budget": budget,
        "host_budget": host_budget,
    }  # fmt: skip
    request = _request(options, keys)
    request.devices, request.global_batch = devices, global_batch
    request.top, request.threads, request.every = top, threads, every
    data, table = _ask(_core.search, request)
    return from_json(SearchResult, data, json=data, table=table)
