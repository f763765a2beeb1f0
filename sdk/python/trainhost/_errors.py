"""Exceptions of the package. Each has the attributes of Error."""

from __future__ import annotations


class Error(Exception):
    """A failure, with a message that says what is wrong, with the value.

    hint: what to do, or "". file, line, column: position of the mistake in a run file, model config or data; None
    where it has none. exit_code: that of the command line for the same failure.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        exit_code: int = 1,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.file = file
        self.line = line
        self.column = column
        self.exit_code = exit_code

    def __str__(self) -> str:
        """FILE:LINE:COLUMN: message (hint)"""
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return (f"{position}: " if position else "") + self.message + (f" ({self.hint})" if self.hint else "")


class UsageError(Error, ValueError):
    """An argument, a run file, a model config or data is wrong."""


class BackendError(Error):
    """The requested trainer cannot be used on this machine."""


class PluginError(Error):
    """A plugin failed or was rejected."""


class EstimatorError(PluginError):
    """A function that is an estimator raised an exception, which is the __cause__; file and line are where."""


_KINDS: dict[str, type[Error]] = {
    "usage": UsageError,
    "backend": BackendError,
    "plugin": PluginError,
    "error": Error,
}


def make_error(kind: str, message: str, hint: str, file: str, line: int, column: int, exit_code: int) -> Error:
    """The exception for a failure in the C++ code, which calls this. A setting of the caller has no position: its
    file is the option of the command line ("--set data.seq_len"). Numbers are 0 where they are not known."""
    if file.startswith("--"):
        file, line, column = "", 0, 0
    return _KINDS[kind](message, hint, file or None, line or None, column or None, exit_code)
