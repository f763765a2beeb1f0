"""Reads and edits symbols and symbol versions of an ELF file of x86-64, in place: no byte moves, so that offsets and
hash tables stay right. Layout of the structures: /usr/include/elf.h."""

import struct
from dataclasses import dataclass
from pathlib import Path

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNAMIC = struct.Struct("<qQ")
NEED, NEED_AUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
DEFINITION, DEFINITION_AUX = struct.Struct("<HHHHIII"), struct.Struct("<II")
DYNAMIC_SECTION, DYNAMIC_SYMBOLS = 6, 11
DEFINED_VERSIONS, NEEDED_VERSIONS, SYMBOL_VERSIONS = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
TAG_NEEDED = 1
HIDDEN = 0x8000
UNVERSIONED = 1  # version index of a symbol that any version satisfies
UNIQUE, GLOBAL = 10, 1  # bindings


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(5) == b"\x7fELF\x02"


def elf_hash(name: str) -> int:
    """The hash of a version's name."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value


@dataclass
class NeededVersion:
    library: str
    name: str
    index: int
    position: int  # of the structure in the file


@dataclass
class DefinedVersion:
    name: str
    index: int
    position: int
    name_position: int  # of the offset of the name


@dataclass
class Symbol:
    name: str
    number: int
    position: int
    name_offset: int
    defined: bool
    binding: int
    address: int
    version: int  # index, without the bit HIDDEN
    hidden: bool


class ElfFile:
    """Errors: ValueError if `path` is no ELF file of x86-64 with a symbol table for the loader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        if self.data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", self.data, 18)[0] != 62:
            raise ValueError(f"{path}: not an ELF file of x86-64")
        start, size, count = (*struct.unpack_from("<Q", self.data, 40), *struct.unpack_from("<HH", self.data, 58))
        self.sections = [SECTION.unpack_from(self.data, start + i * size) for i in range(count)]
        table = self._section(DYNAMIC_SYMBOLS)
        if not table:
            raise ValueError(f"{path}: no dynamic symbols")
        self._symbols, self._strings = table, self.sections[table[6]]
        self.needed_versions = self._read_needed_versions()
        self.defined_versions = self._read_defined_versions()
        self.symbols = self._read_symbols()

    def _section(self, kind: int) -> tuple[int, ...] | None:
        return next((section for section in self.sections if section[1] == kind), None)

    def _string(self, offset: int) -> str:
        begin = self._strings[4] + offset
        return self.data[begin : self.data.index(0, begin)].decode()

    def _read_symbols(self) -> list[Symbol]:
        versions = self._section(SYMBOL_VERSIONS)
        out = []
        for i in range(self._symbols[5] // SYMBOL.size):
            position = self._symbols[4] + i * SYMBOL.size
            name, info, _, section, address, _ = SYMBOL.unpack_from(self.data, position)
            version = struct.unpack_from("<H", self.data, versions[4] + 2 * i)[0] if versions else UNVERSIONED
            out.append(
                Symbol(self._string(name), i, position, name, section != 0, info >> 4, address, version & ~HIDDEN,
                       bool(version & HIDDEN))
            )  # fmt: skip
        return out

    def _read_needed_versions(self) -> list[NeededVersion]:
        section, out = self._section(NEEDED_VERSIONS), []
        position = section[4] if section else 0
        while position:
            _, count, library, aux, following = NEED.unpack_from(self.data, position)
            entry = position + aux
            for _ in range(count):
                _, _, index, name, step = NEED_AUX.unpack_from(self.data, entry)
                out.append(NeededVersion(self._string(library), self._string(name), index, entry))
                entry += step
            position = position + following if following else 0
        return out

    def _read_defined_versions(self) -> list[DefinedVersion]:
        section, out = self._section(DEFINED_VERSIONS), []
        position = section[4] if section else 0
        while position:
            _, _, index, _, _, aux, following = DEFINITION.unpack_from(self.data, position)
            (name, _) = DEFINITION_AUX.unpack_from(self.data, position + aux)
            out.append(DefinedVersion(self._string(name), index, position, position + aux))
            position = position + following if following else 0
        return out

    def needed(self) -> list[str]:
        """DT_NEEDED in the order of the file."""
        return [self._string(value) for _, value in self._needed_entries()]

    def _needed_entries(self) -> list[tuple[int, int]]:
        section = self._section(DYNAMIC_SECTION)
        out: list[tuple[int, int]] = []
        for position in range(section[4], section[4] + section[5], DYNAMIC.size) if section else ():
            tag, value = DYNAMIC.unpack_from(self.data, position)
            if tag == TAG_NEEDED:
                out.append((position, value))
        return out

    def move_needed_last(self, library: str) -> None:
        """The loader searches the symbols of this library after those of the others."""
        entries = self._needed_entries()
        values = sorted((value for _, value in entries), key=lambda value: self._string(value) == library)
        for (position, _), value in zip(entries, values):
            DYNAMIC.pack_into(self.data, position, TAG_NEEDED, value)

    def set_version(self, symbol: Symbol, index: int) -> None:
        versions = self._section(SYMBOL_VERSIONS)
        assert versions
        struct.pack_into("<H", self.data, versions[4] + 2 * symbol.number, index)
        symbol.version = index

    def rename_needed_version(self, version: NeededVersion, name: str) -> None:
        """`name` has to be in the file's strings already, as the name of another needed version."""
        other = next((v for v in self.needed_versions if v.name == name), None)
        if not other:
            raise ValueError(f"{self.path}: {version.name} cannot become {name}, which is not in the file")
        (offset,) = struct.unpack_from("<I", self.data, other.position + 8)
        struct.pack_into("<I", self.data, version.position, elf_hash(name))
        struct.pack_into("<I", self.data, version.position + 8, offset)
        version.name = name

    def rename_symbol(self, symbol: Symbol, name: str) -> None:
        """Of an undefined symbol; `name` has as many bytes as the old one."""
        end = symbol.name_offset + len(symbol.name)
        if symbol.defined or any(symbol.name_offset < s.name_offset < end for s in self.symbols):
            raise ValueError(f"{self.path}: {symbol.name} cannot become {name}")
        self._replace_string(symbol.name_offset, name)
        symbol.name = name

    def rename_version_family(self, library: str, old: str, new: str) -> None:
        """Versions that begin with `old` and are needed from `library`, or defined here, begin with `new` instead,
        which has as many bytes."""
        for v in self.needed_versions:
            if v.library == library and v.name.startswith(old):
                v.name = new + v.name[len(old) :]
                self._replace_string(struct.unpack_from("<I", self.data, v.position + 8)[0], v.name)
                struct.pack_into("<I", self.data, v.position, elf_hash(v.name))
        for d in self.defined_versions:
            if d.name.startswith(old):
                d.name = new + d.name[len(old) :]
                self._replace_string(struct.unpack_from("<I", self.data, d.name_position)[0], d.name)
                struct.pack_into("<I", self.data, d.position + 8, elf_hash(d.name))

    def make_unique_symbols_global(self) -> None:
        """The loader no longer merges them with symbols of the same name in other libraries of the process."""
        for symbol in self.symbols:
            if symbol.binding == UNIQUE:
                info = self.data[symbol.position + 4]
                self.data[symbol.position + 4] = GLOBAL << 4 | info & 0xF

    def _replace_string(self, offset: int, name: str) -> None:
        begin = self._strings[4] + offset
        if len(self._string(offset)) != len(name.encode()) or self.data[begin - 1] != 0:
            raise ValueError(f"{self.path}: {self._string(offset)} cannot become {name}: the string is shared")
        self.data[begin : begin + len(name)] = name.encode()

    def save(self) -> None:
        self.path.write_bytes(self.data)
