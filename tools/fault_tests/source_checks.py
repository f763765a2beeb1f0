"""F29 and F30: branch coverage of the parsers, the checkpoint protocol and the size arithmetic; and removed checks.

Both build the modules and their tests in a folder of their own. F30 does not build once per mutant: every check of the
copied sources gets a number, and an environment variable chooses the one that is ignored.
"""
import gzip
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time

from program import say, seeded

MODULES = ("base", "checkpoint", "data", "runfile")
TESTS = {"base": ["core_base_base_test"], "checkpoint": ["core_checkpoint_safetensors_test", "core_checkpoint_store_test"],
         "data": ["core_data_stories_test", "core_data_tokenizer_test"], "runfile": ["core_runfile_config_test"]}
# A reader in core/base is also tested by the files that are read with it.
MORE_TESTS = {"base": ["core_checkpoint_safetensors_test", "core_runfile_config_test"]}
REJECTS = re.compile(r"\b(throw|throw_errno|fail|reject\w*|rejected|damaged|error|usage_error|run_error)\b\s*[(;E]|"
                     r"\bthrow\b|return (false|std::nullopt|\"|fmt::format)")
MUTANT_HEADER = """// Ignores the check with the number in TRAINHOST_MUTANT.
#pragma once
#include <cstdlib>
inline bool trainhost_check(int number) {
  static const char* const text = std::getenv("TRAINHOST_MUTANT");
  static const int ignored = text ? std::atoi(text) : -1;
  return number != ignored;
}
"""


def all_tests(build):
    """Test programs of the modules that this build has."""
    text = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True).stdout
    names = set(re.findall(r"^(core_(?:" + "|".join(MODULES) + r")_\w+_test): phony", text, re.M))
    return sorted(names)


def blank_out(text):
    """The same text with spaces in place of comments and of the contents of literals, so that offsets stay."""
    out, i = list(text), 0
    while i < len(text):
        end = i + 1
        if text.startswith("//", i):
            end = text.find("\n", i) % (len(text) + 1)
        elif text.startswith("/*", i):
            end = text.find("*/", i) + 2
        elif text.startswith('R"', i):
            mark = text[i + 2:text.index("(", i)]
            end = text.index(")" + mark + '"', i) + len(mark) + 2
        elif text[i] in "\"'" and not (text[i] == "'" and i and text[i - 1].isalnum()):
            while end < len(text) and text[end] != text[i]:
                end += 2 if text[end] == "\\" else 1
            end += 1
            for k in range(i + 1, end - 1):
                out[k] = " "
            i = end
            continue
        else:
            i = end
            continue
        for k in range(i, end):
            if out[k] != "\n":
                out[k] = " "
        i = end
    return "".join(out)


def closing(text, at):
    """Offset of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError("an open bracket")


def checks_in(text):
    """(begin, end) of the condition of every `if` whose statement rejects something."""
    plain, found = blank_out(text), []
    for m in re.finditer(r"\bif \(", plain):
        begin = m.end()
        end = closing(plain, begin - 1)
        body = end + 1
        while plain[body].isspace():
            body += 1
        last = closing(plain, body) if plain[body] == "{" else plain.index(";", body)
        if not REJECTS.search(plain[body:last + 1]):
            continue
        condition = plain[begin:end]
        split, depth = -1, 0
        for i, ch in enumerate(condition):
            depth += (ch in "([{") - (ch in ")]}")
            if ch == ";" and depth == 0:
                split = i
        if split < 0 and re.match(r"\s*(const\s+)?(auto|std::\w+(<[^=]*>)?)[&*\s]+\w+\s*=[^=]", condition):
            continue  # a declaration is the condition
        found.append((begin + split + 1, end))
    return found


def mutate(root, work):
    """Copies the tree and numbers its checks. Returns (source folder, checks as dictionaries)."""
    source = os.path.join(work, "source")
    shutil.rmtree(source, ignore_errors=True)
    at_top = lambda n: n.startswith("build") or n in (".git", "runs")
    shutil.copytree(root, source, symlinks=True,
                    ignore=lambda folder, names: [n for n in names if folder == root and at_top(n)])
    with open(os.path.join(source, "mutant.hpp"), "w") as f:
        f.write(MUTANT_HEADER)
    checks = []
    for module in MODULES:
        folder = os.path.join(source, "core", module)
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".cpp") or name.startswith(("grammar", "stories")):
                continue
            path = os.path.join(folder, name)
            with open(path) as f:
                text = f.read()
            out, last = [], 0
            for begin, end in checks_in(text):
                number = len(checks)
                checks.append({"number": number, "module": module, "file": f"core/{module}/{name}",
                               "line": text.count("\n", 0, begin) + 1, "condition": text[begin:end].strip()})
                out += [text[last:begin], f" ({text[begin:end]}) && trainhost_check({number})"]
                last = end
            out.append(text[last:])
            with open(path, "w") as f:
                f.write("".join(out))
    return source, checks


def make(c, source, build, flags):
    """Configures and builds the test programs of the modules; one job, at the lowest priority."""
    words = ["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTRAINHOST_CUDA=OFF",
             f"-DCMAKE_CXX_FLAGS={flags}"]
    r = subprocess.run(words, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stdout[-1000:] + r.stderr[-2000:])
    targets = all_tests(build)
    r = subprocess.run(["nice", "-n", "19", "ninja", "-C", build, "-j", str(c.jobs), *targets], capture_output=True,
                       text=True)
    if r.returncode:
        raise RuntimeError(r.stdout[-4000:])
    return targets


def first_error(path, number, cache, seconds):
    """Runs a test program with one check ignored until its first error. "" if it passes."""
    env = dict(os.environ, TRAINHOST_MUTANT=str(number), TRAINHOST_CACHE=cache)
    p = subprocess.Popen([path, "--report_level=no"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=lambda: os.nice(19))
    end, text, found = time.monotonic() + seconds, b"", ""
    while not found:
        ready, _, _ = select.select([p.stdout], [], [], max(0, end - time.monotonic()))
        if not ready:
            found = f"does not end within {seconds:.0f} s"
            break
        piece = os.read(p.stdout.fileno(), 65536)
        if not piece:
            break
        text += piece
        m = re.search(rb"[^\n]*: (?:fatal )?error: in \"([^\"]*)\"", text)
        found = m.group(1).decode() if m else ""
    if found:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        return found
    return f"ends with {p.returncode}" if p.wait() else ""


def mutation(c, row):
    if c.tier == 0:
        return row.not_run("tier 1 and above")
    work = c.source_build or c.work
    os.makedirs(work, exist_ok=True)
    source, checks = mutate(c.root, os.path.join(work, "mutants"))
    build = os.path.join(work, "mutants", "build")
    row.figure("checks", len(checks))
    make(c, source, build, "-include " + os.path.join(source, "mutant.hpp"))
    seconds, cache = {}, os.path.join(c.work, "cache")
    for name in sorted({t for m in MODULES for t in TESTS[m] + MORE_TESTS.get(m, [])}):
        begin = time.monotonic()
        why = first_error(os.path.join(build, "tests", name), -1, cache, 600)
        seconds[name] = time.monotonic() - begin
        if why:
            raise RuntimeError(f"{name} fails without a mutant: {why}")
    most = c.mutants or (len(checks) if c.tier == 2 else 120)
    chosen = c.sample_of(checks, most, "F30")
    caught = 0
    for check in chosen:
        why = ""
        for name in sorted(TESTS[check["module"]] + MORE_TESTS.get(check["module"], []), key=seconds.get):
            why = first_error(os.path.join(build, "tests", name), check["number"], cache, 10 * seconds[name] + 30)
            if why:
                check["caught"] = f"{name}: {why}"
                break
        row.cases += 1
        caught += bool(why)
        if not why:
            say(f"F30: not noticed: {check['file']}:{check['line']}: {check['condition']}")
        # After each one, because a long run may be stopped.
        share = caught / row.cases
        row.figure("removed", f"{row.cases:,}")
        row.figure("noticed", f"{caught:,} ({100 * share:.1f} %)")
        c.details["F30"] = [x for x in chosen[:row.cases] if "caught" not in x]
        if c.out_of_time():
            break
    row.case(share >= 0.95, f"{row.cases - caught} removed checks of {row.cases} were not noticed: "
             + "; ".join(f"{x['file']}:{x['line']} {x['condition']}" for x in c.details["F30"])[:1500])
    row.cases -= 1


def coverage(c, row):
    """Branches of the modules that their tests take, without those of exceptions that the compiler adds."""
    if c.tier == 0:
        return row.not_run("tier 1 and above")
    work = c.source_build or c.work
    build = os.path.join(work, "coverage")
    os.makedirs(build, exist_ok=True)
    targets = make(c, c.root, build, "--coverage -DNDEBUG")
    env = dict(os.environ, TRAINHOST_CACHE=os.path.join(c.work, "cache"))
    for name in targets:
        r = subprocess.run(["nice", "-n", "19", os.path.join(build, "tests", name)], env=env, capture_output=True)
        row.case(r.returncode == 0, f"{name}: exit {r.returncode}")
    taken = {}
    for folder, _, files in os.walk(os.path.join(build, "core")):
        for name in files:
            if name.endswith(".gcda"):
                add_branches(os.path.join(folder, name), c.root, taken)
    figures, total = {}, [0, 0]
    for (file, _, _), count in taken.items():
        sums = figures.setdefault(file, [0, 0])
        for s in (sums, total):
            s[0] += count > 0
            s[1] += 1
    c.details["F29"] = {f: {"taken": t, "branches": n} for f, (t, n) in sorted(figures.items())}
    c.details["F29 not taken"] = sorted({f"{f}:{line}" for (f, line, _), n in taken.items() if not n})
    for module in MODULES:
        t, n = (sum(v[i] for f, v in figures.items() if f.startswith(f"core/{module}/")) for i in (0, 1))
        if n:
            row.figure(f"core/{module}", f"{100 * t / n:.1f} % of {n:,}")
    if total[1]:
        row.figure("all", f"{100 * total[0] / total[1]:.1f} % of {total[1]:,} branches")


def add_branches(data, root, taken):
    r = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", data], capture_output=True,
                       cwd=os.path.dirname(data))
    text = r.stdout
    if text[:2] == b"\x1f\x8b":
        text = gzip.decompress(text)
    for line in text.splitlines():
        if not line.strip():
            continue
        for f in json.loads(line)["files"]:
            path = os.path.relpath(os.path.join(root, f["file"]), root)
            if not path.startswith(tuple(f"core/{m}/" for m in MODULES)):
                continue
            if "/grammar" in path or "/stories" in path:
                continue
            for x in f["lines"]:
                for i, b in enumerate(b for b in x["branches"] if not b["throw"]):
                    key = (path, x["line_number"], i)
                    taken[key] = max(taken.get(key, 0), b["count"])
