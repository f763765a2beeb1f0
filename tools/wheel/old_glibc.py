"""Makes files that were linked on a newer system load on one with glibc 2.27. README.md of this folder explains how.

edit(file, builder)    changes one program or library; returns the libraries that it needs in addition
left_over(file)        what still needs a newer system
"""

import re
import subprocess
from pathlib import Path

from elf import UNVERSIONED, ElfFile, NeededVersion, Symbol

TARGET = (2, 27)
OLDEST = "GLIBC_2.2.5"  # the first version of glibc on x86-64
COMPATIBILITY = "libtrainhost-glibc.so"  # made of compatibility.c
STANDARD = "libstdc++.so.6"
PRIVATE_STANDARD = "libstdc++-trainhost.so.6"  # the copy of it in the wheel

# The older version is other code that may be used instead. Since 2.29 (hypot: 2.35) functions of libm do not call a
# user's error handler; since 2.34 pthread_kill() returns 0 for a thread that has ended.
REPLACEABLE = {"exp", "exp2", "log", "log2", "pow", "hypot", "pthread_kill"}
# A function of compatibility.c in place of one that every glibc has.
REPLACED = {"__libc_start_main": "__trainhost_start"}
# The library of glibc 2.27 with a function that is in libc.so.6 today.
FORMER_LIBRARY = (("pthread_", "libpthread.so.0"), ("__pthread_", "libpthread.so.0"), ("sem_", "libpthread.so.0"),
                  ("dl", "libdl.so.2"), ("shm_", "librt.so.1"))  # fmt: skip


class Unsupported(Exception):
    """A file needs something that glibc 2.27 lacks; the text is the message."""


def number(version: str) -> tuple[int, ...]:
    """GLIBC_2.3.4: (2, 3, 4). Empty if it is not a version of glibc."""
    return tuple(int(part) for part in version[6:].split(".")) if re.fullmatch(r"GLIBC_[0-9.]+", version) else ()


def is_too_new(version: str) -> bool:
    """GLIBC_PRIVATE and GLIBC_ABI_* belong to one version of glibc or to newer ones."""
    return version.startswith("GLIBC_") and (not number(version) or number(version) > TARGET)


class Builder:
    """The C library of this machine, and the compatibility library `compatibility`."""

    def __init__(self, compatibility: Path) -> None:
        self.provided = {s.name for s in ElfFile(compatibility).symbols if s.defined}
        self._libraries: dict[str, dict[str, list[tuple[str, int]]]] = {}

    def older_version(self, symbol: str, version: NeededVersion) -> str | None:
        """The version of the symbol that the loader of 2.27, and that of this machine, take for a reference without a
        version: the first one of glibc, else the default one of 2.27, the newest. None if there is none, or if it is
        not the same code: then it has another address in the library of this machine."""
        known = self._library(version.library).get(symbol, [])
        address = next((place for name, place in known if name == version.name), None)
        old = {name: place for name, place in known if number(name) and number(name) <= TARGET}
        taken = OLDEST if OLDEST in old else max(old, key=number, default="")
        return taken if taken and (old[taken] == address or symbol in REPLACEABLE) else None

    def _library(self, name: str) -> dict[str, list[tuple[str, int]]]:
        if name not in self._libraries:
            path = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
            file, out = ElfFile(Path(path.strip())), dict[str, list[tuple[str, int]]]()
            names = {d.index: d.name for d in file.defined_versions}
            for s in file.symbols:
                if s.defined:
                    out.setdefault(s.name, []).append((names.get(s.version, ""), s.address))
            self._libraries[name] = out
        return self._libraries[name]


def edit(file: ElfFile, builder: Builder) -> set[str]:
    """Changes the file in memory. Errors: Unsupported with the file and every symbol that 2.27 cannot have."""
    needed: set[str] = set()
    missing: list[str] = []
    for version in [v for v in file.needed_versions if is_too_new(v.name)]:
        for symbol in [s for s in file.symbols if s.version == version.index]:
            try:
                needed |= _edit_symbol(file, symbol, version, builder)
            except Unsupported as error:
                missing.append(str(error))
        if not missing:
            file.rename_needed_version(version, OLDEST)
    if missing:
        raise Unsupported("\n".join(f"{file.path.name}: {text}" for text in missing))
    # The copy in the wheel is never mixed with the machine's libstdc++, which other libraries of the process may use.
    for family in ("GLIBCXX_", "CXXABI_"):
        file.rename_version_family(STANDARD, family, family.lower())
    if any(d.name.startswith("glibcxx_") for d in file.defined_versions):
        file.make_unique_symbols_global()
    return needed


def _edit_symbol(file: ElfFile, symbol: Symbol, version: NeededVersion, builder: Builder) -> set[str]:
    if symbol.name in REPLACED:
        file.rename_symbol(symbol, REPLACED[symbol.name])
    if symbol.name in builder.provided:
        file.set_version(symbol, UNVERSIONED)
        return {COMPATIBILITY}
    older = builder.older_version(symbol.name, version)
    library = next((name for begin, name in FORMER_LIBRARY if symbol.name.startswith(begin)), version.library)
    if not older or library == "libc.so.6":
        raise Unsupported(f"needs {symbol.name} of {version.name}, which glibc {TARGET[0]}.{TARGET[1]} lacks")
    if library != version.library or older != OLDEST:
        # Before 2.30 the loader takes a version from the named library only, here from libc.so.6.
        file.set_version(symbol, UNVERSIONED)
    return {library} - set(file.needed())


def left_over(file: ElfFile) -> list[str]:
    """One line per symbol of a version that is newer than 2.27, or of a libstdc++ that is not in the wheel."""
    out = []
    for version in file.needed_versions:
        if is_too_new(version.name) or version.name.startswith(("GLIBCXX_", "CXXABI_")):
            symbols = [s.name for s in file.symbols if s.version == version.index] or ["no symbol"]
            out += [f"{file.path.name}: {name} of {version.name}" for name in symbols]
    return out
