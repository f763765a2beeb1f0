#!/usr/bin/env python3
"""Writes src/abi.rs, the C interface in Rust, and src/layout.rs, what a C compiler says about it.

    mirror.py            writes both files
    mirror.py --check    says where they differ from what it would write (exit 1): the test tests/sdk/rust_mirror

Names and types are read from the headers (plain C, one declaration style); sizes and offsets never are: a C program made
of the same names prints them, so a wrong reading here stops the crate from compiling. Run it after any change of a header.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
HEADERS = sorted(re.findall(r'#include "trainhost/(\w+)\.h"', (INCLUDE / "trainhost/trainhost.h").read_text()))
RENAMED = {"self": "self_", "match": "match_"}  # words of Rust
SCALARS = {"uint8_t": "u8", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "double": "f64",
           "float": "f32", "char": "c_char", "void": "c_void", "th_status": "th_status"}


def plain(name):
    """A header without comments and without lines that continue a macro."""
    text = re.sub(r"/\*.*?\*/", " ", (INCLUDE / "trainhost" / (name + ".h")).read_text(), flags=re.S)
    return re.sub(r"//[^\n]*", " ", text).replace("\\\n", " ")


def rust_type(c_type, stars):
    """'const th_model', 1 -> '*const th_model'."""
    words = c_type.split()
    const = "const" in words
    base = [w for w in words if w not in ("const", "struct")][-1]
    out = SCALARS.get(base, base)
    for level in range(stars):
        out = ("*const " if const and level == 0 else "*mut ") + out
    return out


def argument(text):
    match = re.match(r"^(.*?)(\**)\s*(\w+)?$", text.strip().replace(" *", "*").replace("*", " *", 1).replace("* ", "*"))
    before, stars = match.group(1), text.count("*")
    words = (before + " " + (match.group(3) or "")).replace("*", " ").split()
    known = [w for w in words if w in SCALARS or w.startswith("th_")]
    return rust_type(("const " if "const" in words else "") + known[0], stars)


def function_type(result, arguments):
    arguments = "" if arguments.strip() in ("", "void") else ", ".join(argument(a) for a in arguments.split(","))
    result = argument(result)
    return 'Option<unsafe extern "C" fn(%s)%s>' % (arguments, "" if result == "c_void" else " -> " + result)


def fields(body):
    """(name, Rust type) of every member, in order."""
    out = []
    for declaration in [d.strip() for d in body.split(";") if d.strip()]:
        declaration = re.sub(r"\s+", " ", declaration)
        call = re.match(r"^(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", declaration)
        if call:
            out.append((call.group(2), function_type(call.group(1), call.group(3))))
            continue
        first, *more = declaration.split(",")
        head = re.match(r"^((?:const )?(?:struct )?\w+) ?(.*)$", first)
        for declarator in [head.group(2)] + more:
            stars, name, count = re.match(r"^\s*(\**)\s*(\w+)\s*(?:\[(\w+)\])?$", declarator).groups()
            kind = rust_type(head.group(1), len(stars))
            length = count if count and count.isdigit() else "%s as usize" % count
            out.append((name, "[%s; %s]" % (kind, length) if count else kind))
    return out


def structs():
    """{name: fields} in the order of the headers; opaque ones have None."""
    found = {}
    for header in HEADERS:
        text = plain(header)
        for match in re.finditer(r"(?:typedef\s+)?struct\s+(th_\w+)\s*\{(.*?)\}\s*\w*\s*;", text, re.S):
            found[match.group(1)] = fields(match.group(2))
        for match in re.finditer(r"typedef\s+struct\s+(th_\w+)\s+\1\s*;", text):
            found.setdefault(match.group(1), None)
    return found


def constants():
    for header in HEADERS:
        for name, value in re.findall(r"^#define (TH_[A-Z0-9_]+) +(\S.*?)\s*$", plain(header), re.M):
            if value.startswith('"') and value.endswith('"'):
                yield name, "&CStr", "crate::th_text!(%s)" % value
            elif re.fullmatch(r"\(?-?(0x)?[0-9a-fA-F]+u?\)?", value):
                number = value.strip("()")
                yield name, "u32" if number.endswith("u") else "i32", number.rstrip("u")


def abi_rs():
    out = ["// Written by mirror.py from the C headers; do not edit. Names, order and types are theirs; what each means is",
           "// said there (include/trainhost/*.h). layout.rs holds this file against a C compiler.",
           "#![allow(non_camel_case_types, missing_docs)]",
           "use std::ffi::CStr;", "use std::os::raw::{c_char, c_void};", "", "pub type th_status = i32;", ""]
    out += ["pub const %s: %s = %s;" % c for c in constants()]
    for name, members in structs().items():
        out += ["", "#[repr(C)]"]
        if members is None:
            out += ["pub struct %s {" % name, "    _opaque: [u8; 0],", "}"]
            continue
        out += ["#[derive(Clone, Copy)]", "pub struct %s {" % name]
        out += ["    pub %s: %s," % (RENAMED.get(member, member), kind) for member, kind in members] + ["}"]
    return "\n".join(out) + "\n"


def layout_rs():
    lines = ["#include <stdio.h>", "#include <trainhost/trainhost.h>"]
    lines.append("int main(void) {")
    for name, members in structs().items():
        if members is None:
            continue
        lines.append('printf("const _: () = assert!(size_of::<%s>() == %%zu);\\n", sizeof(%s));' % (name, name))
        for member, _ in members:
            lines.append('printf("const _: () = assert!(offset_of!(%s, %s) == %%zu);\\n", offsetof(%s, %s));'
                         % (name, RENAMED.get(member, member), name, member))
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        source.write_text("\n".join(lines))
        program = source.with_suffix("")
        subprocess.run(["cc", "-std=c11", "-I", INCLUDE, source, "-o", program], check=True)
        asserts = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    head = ("// Written by mirror.py: every size and offset as the C compiler has them. A mirror that is wrong does not compile.\n"
            "use crate::abi::*;\nuse crate::offset::offset_of;\nuse core::mem::size_of;\n\n")
    return head + asserts


def main():
    wrong = 0
    for path, text in ((HERE / "src/abi.rs", abi_rs()), (HERE / "src/layout.rs", layout_rs())):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            print("%s is not what the headers say; run sdk/rust/mirror.py" % path.name, file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
