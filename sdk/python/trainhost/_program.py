"""The command `trainhost`: replaces the Python process by the program of this package, with the same arguments."""

import os
import sys
from pathlib import Path

#: The prefix that the program is installed to: bin, lib, include, share.
PREFIX = Path(__file__).resolve().parent


def program() -> Path:
    """The file of the program. Errors: FileNotFoundError if this package contains none."""
    file = PREFIX / "bin" / "trainhost"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing: install the wheel again (pip install --force-reinstall trainhost)")
    return file


def main() -> int:
    """Never returns unless the program cannot be started; then it prints one message and returns 1."""
    try:
        file = str(program())
        os.execv(file, [file, *sys.argv[1:]])
    except FileNotFoundError as error:
        print(f"trainhost: {error}", file=sys.stderr)
    except OSError as error:
        print(
            f"trainhost: {file} cannot be started: {error.strerror} (this wheel is for Linux on x86-64)", file=sys.stderr
        )
    return 1
