#!/usr/bin/env python3
"""Writes the reference of the plugin interface: one page per header with every struct, function and constant.

    reference.py OUT [SDK]    writes OUT/*.md (SDK: default is the folder above this one)

`cmake --build build --target sdk_docs` runs it. Descriptions are the comments of the headers: a comment after
a declaration describes that declaration, a comment before one describes what follows. Offsets and sizes come
from the newest golden file (v1.N.txt). A name that is only in the headers or only in the golden file is an
error, so that no page can be incomplete.
"""
import pathlib
import re
import sys

TOKEN = re.compile(
    r"/\*(?P<comment>.*?)\*/|(?P<blank>\n[ \t]*\n)|(?P<line>\n)|"
    r"(?P<define>#(?:\\\n|[^\n/]|/(?!\*))*)|(?P<code>[^\n/#]+)",
    re.S,
)
TAGS = re.compile(r"((?:All|All callbacks:|All four[^.]*\.)\s*)?((?:\[\w+\]|\{[\w+]+\})[\s\w]*(?:\{[\w+]+\})?)\.?\s*$")

# Fields that have the same meaning in every struct.
COMMON_FIELDS = {"struct_size": "size of the struct in bytes, set by its owner (rule R1)", "reserved": "0"}


def read_golden(sdk):
    """Facts of the newest minor: {struct: [(offset, bytes, field, type)]}, {struct: bytes}, {constant: value}."""
    newest = max((sdk / "abi").glob("v1.*.txt"), key=lambda p: int(p.name.split(".")[1]))
    fields, sizes, constants = {}, {}, {}
    for line in newest.read_text().splitlines():
        fact, _, rest = line.partition(" ")
        if fact == "struct":
            name, size = rest.split()
            fields[name], sizes[name] = [], int(size)
        elif fact == "field":
            name, offset, size, field, kind = rest.split(" ", 4)
            fields[name].append((int(offset), int(size), field, kind))
        elif fact == "abi":
            constants["TH_ABI_MAJOR"], constants["TH_ABI_MINOR"] = rest.split(".")
        elif fact == "constant":
            name, value = rest.split(" ", 1)
            constants[name] = value
    return fields, sizes, constants


def comment_text(comment):
    """A comment as one line, without stars."""
    return re.sub(r"\s+", " ", re.sub(r"\n\s*\*", "\n", comment)).strip()


def comment_block(comment):
    """A comment as a paragraph, or as a code block if lines are indented (tables and lists)."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().splitlines()]
    indented = any(line.startswith("  ") for line in lines)
    return "\n".join(["```text"] + lines + ["```"]) if indented else comment_text(comment)


class Header:
    """A parsed header: first comment, groups of constants, macros, structs with a description per field."""

    def __init__(self, text):
        self.about, self.groups, self.macros, self.structs, self.struct_comments = "", [], [], {}, {}
        tokens, self.pending_comment, self.description = list(TOKEN.finditer(text)), "", None
        code, at_line_start = "", False
        for t in tokens:
            if t["comment"] is not None:
                self.comment(t["comment"], at_line_start, code)
            elif t["blank"] is not None or t["line"] is not None:
                at_line_start = True
                if t["blank"] is not None and not code.strip():
                    self.pending_comment, self.description = "", None
                    self.groups.append((None, []))
                code += " "
            elif t["define"] is not None:
                self.define(t["define"])
                at_line_start, code = False, ""
            else:
                at_line_start = at_line_start and not t["code"].strip()
                code = self.declarations(code + t["code"])

    def comment(self, text, at_line_start, code):
        raw, text = text, comment_text(text)
        if not self.about:
            self.about = comment_block(raw)
        elif not at_line_start and self.description is not None:
            self.description.append(text)  # after a declaration, on its line
        elif not code.strip() or code.strip().endswith("{"):
            self.pending_comment, self.raw = text, raw
            self.groups.append((text, []))

    def define(self, line):
        found = re.match(r"#define (\w+)(\([^)]*\))?\s*(.*)$", line.replace("\\\n", " "), re.S)
        if not found or found[1].startswith("TRAINHOST_"):
            return
        if found[1] == "TH_RETAIN":  # part of TH_MANIFEST
            self.description = []
            return
        name, arguments, value = found.groups()
        value, description = value.strip(), []
        if arguments or not value or name in ("TH_EXPORT", "TH_ENTRY"):
            self.macros.append((name + (arguments or ""), [comment_block(self.raw)] if self.pending_comment else []))
            self.pending_comment, self.description, self.groups = "", self.macros[-1][1], self.groups + [(None, [])]
            return
        if not self.groups:
            self.groups.append((None, []))
        self.groups[-1][1].append((name, description))
        self.description = description

    def declarations(self, code):
        """Consumes complete declarations at the start of `code`; returns the rest."""
        while True:
            opened = re.match(r"\s*(?:typedef\s+)?struct\s+(th_\w+)\s*\{", code)
            if opened:
                self.inside = opened[1]
                self.structs[self.inside] = {}
                self.struct_comments[self.inside], self.pending_comment = self.pending_comment, ""
                code = code[opened.end():]
            elif re.match(r"\s*\}[^;]*;", code):
                code, self.inside, self.pending_comment, self.description = code[code.index(";") + 1:], None, "", None
            elif ";" in code:
                declaration, code = code.split(";", 1)
                self.field(declaration)
            else:
                return code

    def field(self, declaration):
        if not getattr(self, "inside", None):
            kept = self.pending_comment if re.match(r"\s*typedef\s+struct", declaration) else ""
            self.pending_comment, self.description = kept, None  # describes the struct that follows the typedef
            return
        call = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)\s*$", declaration, re.S)
        names = (
            [call[1]] if call else [re.search(r"(\w+)\s*(?:\[\w+\])?\s*$", part)[1] for part in declaration.split(",")]
        )
        description = [self.pending_comment] if self.pending_comment else []
        text = re.sub(r"\s+", " ", declaration).strip() if call else ""
        for name in names:
            self.structs[self.inside][name] = (description, text, names)
        self.pending_comment, self.description = "", description


def cell(text):
    return text.replace("|", "\\|")


def join_sentences(sentences):
    return " ".join(s for s in sentences if s)


def function(struct, name, description, text, about):
    """Section of a function: its declaration, tags, status codes and description."""
    meaning = join_sentences(description)
    tags = TAGS.search(meaning) or TAGS.search(about)
    own = TAGS.search(meaning)
    lines = ["### %s.%s" % (struct, name), "", "```c", text + ";", "```", ""]
    if tags:
        lines += [
            "Threads and states: `%s`" % tags[2].strip() + ("" if own else ", like all functions of this table") + ".",
            "",
        ]
    codes = sorted(set(re.findall(r"TH_E_\w+|TH_OK", meaning)))
    if codes:
        lines += ["Status codes: %s." % ", ".join("[%s](status.md)" % c for c in codes), ""]
    description = (meaning[:own.start(2)] if own else meaning).strip()
    return lines + ([description, ""] if description else [])


def page(name, header, fields, sizes, constants):
    lines = [
        "# %s.h" % name,
        "",
        "Generated from the comments of `trainhost/%s.h` and its golden file." % name,
        "",
        header.about,
        "",
    ]
    groups = [(text, constants_of) for text, constants_of in header.groups if constants_of]
    if groups:
        lines += ["## Constants", ""]
    for text, constants_of in groups:
        lines += ([text, ""] if text else []) + ["| constant | value | meaning |", "|---|---|---|"]
        lines += [
            "| `%s` | %s | %s |" % (n, constants.pop(n), cell(join_sentences(description)))
            for n, description in constants_of
        ] + [""]
    if header.macros:
        lines += ["## Macros", ""] + [
            line for n, description in header.macros for line in ("### %s" % n, "", join_sentences(description), "")
        ]
    for struct, members in header.structs.items():
        known = fields.pop(struct)
        if [f[2] for f in known] != list(members):
            sys.exit(
                "reference.py: fields of %s in %s.h are %s, but in the golden file %s"
                % (struct, name, list(members), [f[2] for f in known])
            )
        about = header.struct_comments[struct]
        lines += [
            "## %s" % struct,
            "",
            ("%d bytes. %s" % (sizes[struct], about)).strip(),
            "",
            "| offset | field | type | meaning |",
            "|---|---|---|---|",
        ]
        for offset, _, field, kind in known:
            description, call, names = members[field]
            meaning = "[details](#%s%s)" % (struct, field) if call else cell(join_sentences(description))
            others = [n for n in names if n not in COMMON_FIELDS]
            if field in COMMON_FIELDS:
                meaning = COMMON_FIELDS[field]
            elif len(others) > 1 and meaning:
                meaning = "(%s) %s" % (", ".join(others), meaning)
            lines.append("| %d | `%s` | `%s` | %s |" % (offset, field, "function" if call else cell(kind), meaning))
        lines.append("")
        for field, (description, call, _) in members.items():
            lines += function(struct, field, description, call, about) if call else []
    return "\n".join(lines).rstrip() + "\n"


def pages(sdk):
    """Returns {file name: text}."""
    fields, sizes, constants = read_golden(sdk)
    out, rows = {}, []
    for path in sorted((sdk / "include/trainhost").glob("*.h")):
        if path.stem == "trainhost":  # includes the others
            continue
        header = Header(path.read_text())
        out[path.stem + ".md"] = page(path.stem, header, fields, sizes, constants)
        rows.append(
            "| [%s.h](%s.md) | %s |"
            % (path.stem, path.stem, ", ".join("`%s`" % s for s in header.structs) or "constants")
        )
    constants.pop("TH_ENTRY", None)  # a macro
    if fields or constants:
        sys.exit("reference.py: in the golden file but in no header: %s" % (list(fields) + list(constants)))
    out["README.md"] = (
        "\n".join(
            [
                "# The interface, header by header",
                "",
                "Generated from the comments of the headers and the golden file of the interface. Rules for all",
                "headers, and the meaning of the tags `[any]`, `[inst]`, `[ctl]` and `{started}`, are at the top of",
                "[status.h](status.md). `trainhost.hpp` is an optional C++ layer; it adds nothing to the interface.",
                "",
                "| header | structs |",
                "|---|---|",
            ]
            + rows
        )
        + "\n"
    )
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
