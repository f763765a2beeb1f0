#!/usr/bin/env python3
"""Writes the reference of the plugin interface: one page per header with every struct, function and constant.

    reference.py OUT [SDK]    writes OUT/*.md (SDK: default is the folder above this one)

`cmake --build build --target sdk_docs` runs it. Descriptions are the comments of the headers: a comment after a declaration
describes that declaration, a comment before one describes what follows. Offsets and sizes come from the newest golden file
(v1.N.txt). A name that only the headers or only the golden file knows is an error, so that no page can be incomplete.
"""
import pathlib
import re
import sys

TOKEN = re.compile(r"/\*(?P<comment>.*?)\*/|(?P<blank>\n[ \t]*\n)|(?P<line>\n)|(?P<define>#(?:\\\n|[^\n/]|/(?!\*))*)|(?P<code>[^\n/#]+)", re.S)
TAGS = re.compile(r"((?:All|All callbacks:|All four[^.]*\.)\s*)?((?:\[\w+\]|\{[\w+]+\})[\s\w]*(?:\{[\w+]+\})?)\.?\s*$")

GIVEN = {"struct_size": "bytes of the struct, as its writer knows it: rule R1", "reserved": "0"}


def golden(sdk):
    """{struct: [(offset, bytes, field, type)]}, {struct: bytes}, {constant: value} of the newest minor."""
    newest = max((sdk / "abi").glob("v1.*.txt"), key=lambda p: int(p.name.split(".")[1]))
    fields, sizes, constants = {}, {}, {}
    for line in newest.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "struct":
            name, size = rest.split()
            fields[name], sizes[name] = [], int(size)
        elif word == "field":
            name, offset, size, field, kind = rest.split(" ", 4)
            fields[name].append((int(offset), int(size), field, kind))
        elif word == "abi":
            constants["TH_ABI_MAJOR"], constants["TH_ABI_MINOR"] = rest.split(".")
        elif word == "constant":
            name, value = rest.split(" ", 1)
            constants[name] = value
    return fields, sizes, constants


def plain(comment):
    """A comment as running text: without stars and line ends."""
    return re.sub(r"\s+", " ", re.sub(r"\n\s*\*", "\n", comment)).strip()


def block(comment):
    """A comment as a paragraph, or as it stands where its lines are indented: a table, a list."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().splitlines()]
    indented = any(line.startswith("  ") for line in lines)
    return "\n".join(["```text"] + lines + ["```"]) if indented else plain(comment)


class Header:
    """One header, cut into its parts: about, groups of constants, macros, structs with the meaning of each field."""

    def __init__(self, text):
        self.about, self.groups, self.macros, self.structs, self.alone = "", [], [], {}, {}
        tokens, self.waiting, self.last = list(TOKEN.finditer(text)), "", None
        code, fresh = "", False
        for t in tokens:
            if t["comment"] is not None:
                self.comment(t["comment"], fresh, code)
            elif t["blank"] is not None or t["line"] is not None:
                fresh = True
                if t["blank"] is not None and not code.strip():
                    self.waiting, self.last = "", None
                    self.groups.append((None, []))
                code += " "
            elif t["define"] is not None:
                self.define(t["define"])
                fresh, code = False, ""
            else:
                fresh = fresh and not t["code"].strip()
                code = self.declarations(code + t["code"])

    def comment(self, text, fresh, code):
        raw, text = text, plain(text)
        if not self.about:
            self.about = block(raw)
        elif not fresh and self.last is not None:
            self.last.append(text)  # behind a declaration, on its line
        elif not code.strip() or code.strip().endswith("{"):
            self.waiting, self.raw = text, raw
            self.groups.append((text, []))

    def define(self, line):
        found = re.match(r"#define (\w+)(\([^)]*\))?\s*(.*)$", line.replace("\\\n", " "), re.S)
        if not found or found[1].startswith("TRAINHOST_"):
            return
        if found[1] == "TH_RETAIN":  # a part of TH_MANIFEST
            self.last = []
            return
        name, arguments, value = found.groups()
        value, said = value.strip(), []
        if arguments or not value or name in ("TH_EXPORT", "TH_ENTRY"):
            self.macros.append((name + (arguments or ""), [block(self.raw)] if self.waiting else []))
            self.waiting, self.last, self.groups = "", self.macros[-1][1], self.groups + [(None, [])]
            return
        if not self.groups:
            self.groups.append((None, []))
        self.groups[-1][1].append((name, said))
        self.last = said

    def declarations(self, code):
        """Takes whole declarations off the front of `code`; gives what is left."""
        while True:
            opened = re.match(r"\s*(?:typedef\s+)?struct\s+(th_\w+)\s*\{", code)
            if opened:
                self.inside = opened[1]
                self.structs[self.inside] = {}
                self.alone[self.inside], self.waiting = self.waiting, ""
                code = code[opened.end():]
            elif re.match(r"\s*\}[^;]*;", code):
                code, self.inside, self.waiting, self.last = code[code.index(";") + 1:], None, "", None
            elif ";" in code:
                declaration, code = code.split(";", 1)
                self.field(declaration)
            else:
                return code

    def field(self, declaration):
        if not getattr(self, "inside", None):
            kept = self.waiting if re.match(r"\s*typedef\s+struct", declaration) else ""
            self.waiting, self.last = kept, None  # of the struct that follows its own name
            return
        call = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)\s*$", declaration, re.S)
        names = [call[1]] if call else [re.search(r"(\w+)\s*(?:\[\w+\])?\s*$", part)[1] for part in declaration.split(",")]
        said = [self.waiting] if self.waiting else []
        text = re.sub(r"\s+", " ", declaration).strip() if call else ""
        for name in names:
            self.structs[self.inside][name] = (said, text, names)
        self.waiting, self.last = "", said


def cell(text):
    return text.replace("|", "\\|")


def sentence(said):
    return " ".join(s for s in said if s)


def function(struct, name, said, text, about):
    """A slot of a table: its declaration, tags, codes, and what is said of it."""
    meaning = sentence(said)
    tags = TAGS.search(meaning) or TAGS.search(about)
    own = TAGS.search(meaning)
    lines = ["### %s.%s" % (struct, name), "", "```c", text + ";", "```", ""]
    if tags:
        lines += ["Called: `%s`" % tags[2].strip() + ("" if own else ", as all of this table") + ".", ""]
    codes = sorted(set(re.findall(r"TH_E_\w+|TH_OK", meaning)))
    if codes:
        lines += ["Codes named: %s." % ", ".join("[%s](status.md)" % c for c in codes), ""]
    words = (meaning[:own.start(2)] if own else meaning).strip()
    return lines + ([words, ""] if words else [])


def page(name, header, fields, sizes, constants):
    lines = ["# %s.h" % name, "", "Written by sdk/abi/reference.py from `trainhost/%s.h`; do not edit." % name, "", header.about, ""]
    groups = [(text, found) for text, found in header.groups if found]
    if groups:
        lines += ["## Constants", ""]
    for text, found in groups:
        lines += ([text, ""] if text else []) + ["| constant | value | meaning |", "|---|---|---|"]
        lines += ["| `%s` | %s | %s |" % (n, constants.pop(n), cell(sentence(said))) for n, said in found] + [""]
    if header.macros:
        lines += ["## Macros", ""] + [line for n, said in header.macros for line in ("### %s" % n, "", sentence(said), "")]
    for struct, members in header.structs.items():
        known = fields.pop(struct)
        if [f[2] for f in known] != list(members):
            sys.exit("reference.py: %s of %s.h is %s here and %s in the golden" % (struct, name, list(members), [f[2] for f in known]))
        about = header.alone[struct]
        lines += ["## %s" % struct, "", ("%d bytes. %s" % (sizes[struct], about)).strip(), "", "| offset | field | type | meaning |", "|---|---|---|---|"]
        for offset, _, field, kind in known:
            said, call, names = members[field]
            meaning = "[below](#%s%s)" % (struct, field) if call else cell(sentence(said))
            together = [n for n in names if n not in GIVEN]
            if field in GIVEN:
                meaning = GIVEN[field]
            elif len(together) > 1 and meaning:
                meaning = "(%s) %s" % (", ".join(together), meaning)
            lines.append("| %d | `%s` | `%s` | %s |" % (offset, field, "function" if call else cell(kind), meaning))
        lines.append("")
        for field, (said, call, _) in members.items():
            lines += function(struct, field, said, call, about) if call else []
    return "\n".join(lines).rstrip() + "\n"


def pages(sdk):
    """{file name: text}."""
    fields, sizes, constants = golden(sdk)
    out, rows = {}, []
    for path in sorted((sdk / "include/trainhost").glob("*.h")):
        if path.stem == "trainhost":  # includes the others
            continue
        header = Header(path.read_text())
        out[path.stem + ".md"] = page(path.stem, header, fields, sizes, constants)
        rows.append("| [%s.h](%s.md) | %s |" % (path.stem, path.stem, ", ".join("`%s`" % s for s in header.structs) or "constants"))
    constants.pop("TH_ENTRY", None)  # a macro
    if fields or constants:
        sys.exit("reference.py: in the golden and in no header: %s" % (list(fields) + list(constants)))
    out["README.md"] = "\n".join(
        ["# The interface, header by header", "", "Written by sdk/abi/reference.py from the headers' comments and the layout golden; do not edit. The rules for all of",
         "it, and what the tags `[any]` `[inst]` `[ctl]` and `{started}` mean, are at the top of [status.h](status.md). For C++ there is also",
         "`trainhost.hpp`, comfort that is header-only and adds nothing to the interface.", "", "| header | structs |", "|---|---|"] + rows) + "\n"
    return out


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    sdk = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else pathlib.Path(__file__).resolve().parent.parent
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages(sdk).items():
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
