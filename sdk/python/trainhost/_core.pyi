# The module of sdk/python/module.cpp.
import os
from collections.abc import Callable

version: str

class Request:
    model: str
    run_file: str
    from_files: list[str]
    settings: list[str]
    plugin_path: list[str]
    backend: str
    device: str
    budget: str
    host_budget: str
    framework: str
    estimators: str
    safe: bool
    limits: bool
    over: str
    devices: int
    global_batch: int
    top: int
    threads: int
    every: bool
    def __init__(self) -> None: ...

# JSON and table. estimators: name, families, function from JSON to JSON.
def plan(request: Request, estimators: list[tuple[str, list[str], Callable[[str], str]]]) -> tuple[str, str]: ...
def sweep(request: Request, estimators: list[tuple[str, list[str], Callable[[str], str]]]) -> tuple[str, str]: ...
def search(request: Request, estimators: list[tuple[str, list[str], Callable[[str], str]]]) -> tuple[str, str]: ...
def set_program(file: str | os.PathLike[str]) -> None: ...
def run_file_keys() -> list[str]: ...
def components() -> list[str]: ...
def tiers() -> list[str]: ...
def kinds() -> list[str]: ...
