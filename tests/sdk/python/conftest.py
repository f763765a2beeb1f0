"""Shared by the tests of the Python package. CMake sets PYTHONPATH to the package in the build folder."""

import subprocess
from pathlib import Path

import pytest
import trainhost

PROGRAM = Path(trainhost.__file__).parent / "bin" / "trainhost"


@pytest.fixture
def program():
    """Runs the program; returns its standard output."""

    def run(*words, cwd=None):
        return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True, cwd=cwd).stdout

    return run


@pytest.fixture
def functions():
    """The name of every estimator that a test registers is appended here; they are removed after it."""
    names = []
    yield names
    for name in names:
        trainhost.remove_estimator(name)
