"""Imports single modules of a package without what the package needs beside torch (data sets, tokenizers, configuration)."""
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import sysconfig
import types
from unittest import mock


class Empty(types.ModuleType):
    """A module whose attributes are empty classes."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock() if name.islower() else type(name, (), {})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the folders of a package without their __init__.py, and every module that is not named as an empty one."""

    def __init__(self, root: str, package: str, used):
        self._root, self._package, self._used = root, package, used

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != self._package or name in self._used:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Empty(spec.name)
        folder = os.path.join(self._root, *spec.name.split("."))
        module.__path__ = [folder] if os.path.isdir(folder) else []
        return module

    def exec_module(self, module):
        pass


def modules(package: str, used, install: str, exports=()):
    """The modules `used`, in their order. `install`: how to get the package. `exports`: (module, names) that the folders
    above it export, as their __init__.py does."""
    if not any(isinstance(f, Finder) and f._package == package for f in sys.meta_path):
        folders = [p for p in [*sys.path, sysconfig.get_path("purelib")] if os.path.isdir(os.path.join(p, package))]
        if not folders:
            raise ImportError(f"{package} is not installed: {install}")
        sys.meta_path.insert(0, Finder(folders[0], package, used))
    exports = dict(exports)
    found = []
    # Flexible attention is compiled when its module is imported; it is not used here.
    with mock.patch("torch.compile", lambda function=None, **options: function):
        for name in used:
            found.append(importlib.import_module(name))
            for export in exports.get(name, ()):
                folder = name.rpartition(".")[0]
                while folder != package:
                    setattr(importlib.import_module(folder), export, getattr(found[-1], export))
                    folder = folder.rpartition(".")[0]
    return tuple(found)
