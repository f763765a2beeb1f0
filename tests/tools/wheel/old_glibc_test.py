#!/usr/bin/env python3
"""Tests tools/wheel without a wheel: a program, a plugin and libstdc++ are changed for glibc 2.27 and run here. Needs a
C++ compiler; skipped by name (exit code 77) without one. That they run on an older system is not tested here."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "tools" / "wheel"
sys.path.insert(0, str(SOURCE))
import old_glibc
from elf import ElfFile, elf_hash

HERE = Path(__file__).resolve().parent
PRIVATE = "libstdc++.my.6"  # as long as the name that it replaces


def rename_standard_library(path):
    """As patchelf does in a wheel."""
    path.write_bytes(path.read_bytes().replace(b"\0libstdc++.so.6\0", f"\0{PRIVATE}\0".encode()))


def cc(*words):
    subprocess.run([words[0], "-O1", *map(str, words[1:])], check=True, stderr=subprocess.PIPE)


class OldGlibc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        cls.compatibility = cls.folder / old_glibc.COMPATIBILITY
        soname = f"-Wl,-soname,{cls.compatibility.name}"
        cc("cc", "-shared", "-fPIC", "-fno-builtin", "-Wall", "-Werror", soname, "-o", cls.compatibility,
           SOURCE / "compatibility.c")  # fmt: skip
        cls.builder = old_glibc.Builder(cls.compatibility)
        # Stands for the libraries that patchelf adds in a wheel.
        cls.link = [
            f"-Wl,--no-as-needed,-rpath,{cls.folder}",
            cls.compatibility,
            "-l:libpthread.so.0",
            "-l:libdl.so.2",
            "-lm",
        ]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def edited(self, path):
        file = ElfFile(path)
        added = old_glibc.edit(file, self.builder)
        file.move_needed_last(old_glibc.COMPATIBILITY)
        file.save()
        self.assertLessEqual(added, set(file.needed()))
        self.assertEqual(old_glibc.left_over(ElfFile(path)), [])
        rename_standard_library(path)
        return ElfFile(path)

    def build(self, name, source, *words):
        cc("c++", "-std=c++20", source, "-o", self.folder / name, *words, *self.link)
        return self.folder / name

    def standard_library(self):
        """The machine's, and the edited copy, which the run path of the other files finds."""
        found = subprocess.run(
            ["c++", f"-print-file-name={old_glibc.STANDARD}"], capture_output=True, text=True, check=True
        )
        copy = self.folder / PRIVATE
        if not copy.exists():
            shutil.copyfile(found.stdout.strip(), copy)
            file = ElfFile(copy)
            old_glibc.edit(file, self.builder)
            file.save()
            self.assertEqual(old_glibc.left_over(ElfFile(copy)), [])
            rename_standard_library(copy)
        return Path(found.stdout.strip()), copy

    def test_a_changed_program_runs_its_constructors_threads_exceptions_and_plugins(self):
        plugin = self.build("plugin.so", HERE / "plugin.cpp", "-shared", "-fPIC")
        program = self.build("program", HERE / "program.cpp")
        before = subprocess.run([program, plugin], capture_output=True, text=True, check=True).stdout
        self.assertRegex(before, r"^thrown constructed of parts 2 1\.0\d+ 1 116\n$")
        self.standard_library()
        names = {s.name for s in self.edited(program).symbols}
        self.edited(plugin)
        self.assertIn("__trainhost_start", names)
        self.assertNotIn("__libc_start_main", names)
        after = subprocess.run([program, plugin], check=False, capture_output=True, text=True)
        self.assertEqual((after.returncode, after.stdout, after.stderr), (0, before, ""))

    def test_a_function_that_2_27_lacks_is_named_with_its_file(self):
        source = self.folder / "newer.cpp"
        source.write_text(
            'extern "C" int _dl_find_object(void*, void*);  int main() { char o[64]; return _dl_find_object(o, o); }'
        )
        program = self.build("newer", source)
        before = program.read_bytes()
        with self.assertRaisesRegex(
            old_glibc.Unsupported, "^newer: needs _dl_find_object of GLIBC_2.35, which glibc 2.27 lacks$"
        ):
            old_glibc.edit(ElfFile(program), self.builder)
        self.assertEqual(program.read_bytes(), before)
        self.assertIn("newer: _dl_find_object of GLIBC_2.35", old_glibc.left_over(ElfFile(program)))

    def test_the_copy_of_libstdcxx_is_not_mixed_with_that_of_the_machine(self):
        machine, copy = self.standard_library()
        self.edited(self.build("apart.so", HERE / "plugin.cpp", "-shared", "-fPIC"))
        theirs = ctypes.CDLL(machine, ctypes.RTLD_GLOBAL)  # its symbols come before those of any library loaded later
        ours = ctypes.CDLL(self.folder / "apart.so")
        ours.stream.restype = ctypes.c_void_p
        self.assertNotEqual(ours.stream(), ctypes.addressof(ctypes.c_char.in_dll(theirs, "_ZSt4cout")))
        self.assertEqual(ours.caught(), ord("t"))
        self.assertIn(str(copy), Path("/proc/self/maps").read_text())
        self.assertEqual([s.name for s in ElfFile(copy).symbols if s.binding == 10], [])

    def test_the_compatibility_library_needs_no_newer_glibc_and_answers_as_glibc(self):
        self.assertEqual(old_glibc.left_over(ElfFile(self.compatibility)), [])
        theirs, ours = ctypes.CDLL(None, use_errno=True), ctypes.CDLL(self.compatibility, use_errno=True)
        link = self.folder / "link"
        link.symlink_to("nowhere")
        files = {"stat": b"/proc/self/exe", "stat64": b"/bin/sh", "fstat": 0, "fstat64": 0}
        files |= {"lstat": bytes(link), "lstat64": bytes(link)}
        for name, argument in [*files.items(), ("stat", bytes(link)), ("fstat", -1)]:
            answers = []
            for library in (theirs, ours):
                buffer = ctypes.create_string_buffer(144)  # sizeof(struct stat)
                ctypes.set_errno(0)
                answers.append((getattr(library, name)(argument, buffer), ctypes.get_errno(), buffer.raw))
            self.assertEqual(*answers, name)
        for library in (theirs, ours):
            library.sigabbrev_np.restype = ctypes.c_char_p
        for number in range(-1, 66):
            self.assertEqual(theirs.sigabbrev_np(number), ours.sigabbrev_np(number))
        renamed = self.folder / "renamed"
        self.assertEqual(ours.renameat2(-100, bytes(link), -100, bytes(renamed), 1), 0)
        self.assertTrue(renamed.is_symlink() and not link.is_symlink())
        self.assertGreater(len({ours.arc4random() for _ in range(8)}), 6)

        class Counts(ctypes.Structure):
            _fields_ = [(f"f{i}", ctypes.c_size_t) for i in range(10)]

        theirs.mallinfo2.restype = ours.mallinfo2.restype = Counts
        for index in (0, 4, 9):  # bytes of the arena, of mapped blocks, that could be trimmed
            a, b = (getattr(library.mallinfo2(), f"f{index}") for library in (theirs, ours))
            self.assertAlmostEqual(a, b, delta=1 << 20)

    def test_addclosefrom_closes_what_is_open(self):
        libc, ours = ctypes.CDLL(None), ctypes.CDLL(self.compatibility)
        open_here = [os.dup(1) for _ in range(3)]
        for fd in open_here:
            os.set_inheritable(fd, True)
        first, kept = open_here[1], open_here[0]
        text = f"test -e /proc/self/fd/{kept} || exit 1; for fd in {' '.join(map(str, open_here[1:]))}; do"
        text += " test ! -e /proc/self/fd/$fd || exit 2; done"
        argv = (ctypes.c_char_p * 4)(b"sh", b"-c", text.encode(), None)
        actions, pid = ctypes.create_string_buffer(256), ctypes.c_int()
        libc.posix_spawn_file_actions_init(actions)
        self.assertEqual(ours.posix_spawn_file_actions_addclosefrom_np(actions, first), 0)
        self.assertEqual(libc.posix_spawn(ctypes.byref(pid), b"/bin/sh", actions, None, argv, None), 0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid.value, 0)[1]), 0)
        libc.posix_spawn_file_actions_destroy(actions)
        for fd in open_here:
            os.close(fd)

    def test_the_hash_of_a_version_is_that_of_the_loader(self):
        self.assertEqual(elf_hash("GLIBC_2.2.5"), 0x09691A75)


if __name__ == "__main__":
    if not shutil.which("cc") or not shutil.which("c++"):
        print("skipped: no C++ compiler")
        sys.exit(77)
    unittest.main()
