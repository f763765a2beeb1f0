"""F29 and F30: branch coverage of the parsers, the checkpoint protocol and the size arithmetic; and removed checks.

Both build the modules and their tests in a folder of their own; tier 0 compiles two modules again (quick_checks.py).
F30 does not build once per mutant: every check of the copied sources gets a number, and an environment variable chooses
the one that is ignored.
"""
import gzip
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from program import say

MODULES = ("base", "checkpoint", "data", "runfile")
NO_READERS = ("grammar", "stories")  # files that generate text
REJECTS = re.compile(r"\b(throw|throw_errno|fail\w*|wrong_type|reject\w*|damaged|error|usage_error|run_error)\b\s*[(;E]|"
                     r"\bthrow\b|return (false|std::nullopt|\"|fmt::format)")
MUTANT_HEADER = Path(__file__).with_name("mutant.hpp")
SLOW_S = 1.0  # slower test cases only run if no faster one notices


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


def write_if_changed(path, text):
    """Leaves the time of a file that has this text already, so that it is not compiled again."""
    try:
        with open(path) as f:
            if f.read() == text:
                return
    except OSError:
        pass
    with open(path, "w") as f:
        f.write(text)


def numbered(root, file, checks):
    """The text of a source file with a number in each of its checks, which are appended to `checks`."""
    with open(os.path.join(root, file)) as f:
        text = f.read()
    out, last = [], 0
    for begin, end in [] if os.path.basename(file).startswith(NO_READERS) else checks_in(text):
        number = len(checks)
        checks.append({"number": number, "module": file.split("/")[1], "file": file,
                       "line": text.count("\n", 0, begin) + 1, "condition": " ".join(text[begin:end].split())})
        out += [text[last:begin], f" ({text[begin:end]}) && trainhost_check({number})"]
        last = end
    return "".join([*out, text[last:]])


def mutate(root, work):
    """Copies the tree and numbers its checks. Returns (source folder, checks as dictionaries)."""
    source = os.path.join(work, "source")
    of_modules = [os.path.join(root, "core", m) for m in MODULES]

    def left_out(folder, names):
        return [n for n in names if (folder == root and (n.startswith("build") or n in (".git", "runs")))
                or (folder in of_modules and n.endswith(".cpp"))]

    shutil.copytree(root, source, ignore=left_out, dirs_exist_ok=True)
    write_if_changed(os.path.join(source, "mutant.hpp"), MUTANT_HEADER.read_text())
    checks = []
    for module in MODULES:
        for name in sorted(n for n in os.listdir(os.path.join(root, "core", module)) if n.endswith(".cpp")):
            file = f"core/{module}/{name}"
            write_if_changed(os.path.join(source, file), numbered(root, file, checks))
    return source, checks


def make(c, source, build, flags):
    """Configures and builds the test programs of the modules; one job, at the lowest priority."""
    words = ["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTRAINHOST_CUDA=OFF",
             f"-DCMAKE_CXX_FLAGS={flags}"]
    r = subprocess.run(words, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stdout[-1000:] + r.stderr[-2000:])
    targets = all_tests(build)
    r = subprocess.run(["nice", "-n", "5", "ninja", "-C", build, "-j", str(c.jobs), *targets], capture_output=True,
                       text=True)
    if r.returncode:
        raise RuntimeError(r.stdout[-4000:])
    return targets


def test_cases(path):
    """Names of the test cases of a program for --run_test; the parts of a data-driven one are one case."""
    text = subprocess.run([path, "--list_content"], capture_output=True, text=True).stderr
    stack, found = [], []
    lines = [x for x in text.splitlines() if x.strip()]
    for i, line in enumerate(lines):
        depth, name = (len(line) - len(line.lstrip())) // 4, line.strip().rstrip("*")
        stack[depth:] = [name]
        following = lines[i + 1] if i + 1 < len(lines) else ""
        is_suite = (len(following) - len(following.lstrip())) // 4 > depth
        if not is_suite and not re.fullmatch(r"_\d+", name):
            found.append("/".join(stack))
        elif name == "_0":
            found.append("/".join(stack[:-1]))
    return found


def first_error(c, path, cases, seconds, **variables):
    """Runs test cases of a program until the first error. Returns its place, "" if they pass."""
    env = dict(os.environ, TRAINHOST_CACHE=os.path.join(c.work, "cache"), **variables)
    nice = ["nice", "-n", "19"] if c.tier else []
    words = [*nice, path, "--report_level=no", "--color_output=no", *(f"--run_test={x}" for x in cases)]
    p = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                         start_new_session=True)
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


def reaching_cases(c, jobs, checks):
    """By check: (program, test case, seconds) of the (program, test case) pairs in which its condition is true, fastest
    first."""
    by_check = {x["number"]: [] for x in checks}

    def run(i, job):
        program, case = job
        with tempfile.NamedTemporaryFile(dir=c.work) as marks:
            marks.truncate(1 << 16)
            begin = time.monotonic()
            why = first_error(c, program, [case], 900, TRAINHOST_REACHED=marks.name)
            seconds = time.monotonic() - begin
            if why:
                raise RuntimeError(f"{os.path.basename(program)} fails without a mutant: {case}: {why}")
            reached = marks.read()
        for number, cases in by_check.items():
            if reached[number]:
                cases.append((program, case, seconds))

    c.in_parallel(jobs, run)
    return {n: sorted(cases, key=lambda x: x[2]) for n, cases in by_check.items()}


def who_notices(c, check, cases):
    """The first test case that fails when the check is ignored, "" if none does."""
    fast = {}
    for program, case, seconds in cases:
        if seconds < SLOW_S:
            fast.setdefault(program, []).append((case, seconds))
    runs = [(program, x) for program, x in fast.items()]
    runs += [(program, [(case, seconds)]) for program, case, seconds in cases if seconds >= SLOW_S]
    for program, some in runs:
        limit = 10 * sum(seconds for _, seconds in some) + (60 if c.tier else 2)
        why = first_error(c, program, [x for x, _ in some], limit, TRAINHOST_MUTANT=str(check["number"]))
        if why:
            return f"{os.path.basename(program)}: {why}"
    return ""


def mutation(c, row):
    work = c.source_build or c.work
    os.makedirs(work, exist_ok=True)
    source, checks = mutate(c.root, os.path.join(work, "mutants"))
    build = os.path.join(work, "mutants", "build")
    make(c, source, build, "-include " + os.path.join(source, "mutant.hpp"))
    programs = [os.path.join(build, "tests", name) for name in all_tests(build)]
    row.figure("checks", len(checks))
    cases = reaching_cases(c, [(p, x) for p in programs for x in test_cases(p)], checks)
    remove_checks(c, row, c.sample_of(checks, c.mutants or len(checks), "F30"), cases)


def remove_checks(c, row, checks, cases):
    """Ignores one check after the other; at most 5 % of them may go unnoticed."""
    results = []
    c.details["F30"] = []

    def run(i, check):
        check["reached by"] = len(cases[check["number"]])
        check["noticed by"] = who_notices(c, check, cases[check["number"]])
        results.append(bool(check["noticed by"]))
        if not check["noticed by"]:
            c.details["F30"].append(check)
            say(f"F30: not noticed: {check['file']}:{check['line']}: {check['condition']}"
                + ("" if check["reached by"] else ": no test reaches it"))
        # After each one, because a long run may be stopped.
        row.figure("removed", f"{len(results):,}")
        row.figure("noticed", f"{sum(results):,} ({100 * sum(results) / len(results):.1f} %)")

    c.in_parallel(checks, run)
    missed = sorted(c.details["F30"], key=lambda x: x["number"])
    row.case(len(missed) <= 0.05 * len(results), f"{len(missed)} removed checks of {len(results)} were not noticed: "
             + "; ".join(f"{x['file']}:{x['line']} {x['condition']}" for x in missed)[:1500])
    row.cases = len(results)


def coverage(c, row):
    """Branches of the modules that their tests take, without those of exceptions that the compiler adds."""
    work = c.source_build or c.work
    build = os.path.join(work, "coverage")
    os.makedirs(build, exist_ok=True)
    targets = make(c, c.root, build, "--coverage -DNDEBUG")
    env = dict(os.environ, TRAINHOST_CACHE=os.path.join(c.work, "cache"))
    for name in targets:
        r = subprocess.run(["nice", "-n", "19", os.path.join(build, "tests", name)], env=env, capture_output=True)
        row.case(r.returncode == 0, f"{name}: exit {r.returncode}")
    figures, taken = taken_branches(c.root, os.path.join(build, "core"))
    c.details["F29"] = {f: {"taken": t, "branches": n} for f, (t, n) in sorted(figures.items())}
    c.details["F29 not taken"] = sorted({f"{f}:{line}" for (f, line, _), n in taken.items() if not n})
    for module in MODULES:
        of_module = [v for f, v in figures.items() if f.startswith(f"core/{module}/")]
        if of_module:
            row.figure(f"core/{module}", share(of_module))
    row.figure("all", share(figures.values()))


def share(figures):
    taken, branches = (sum(v[i] for v in figures) for i in (0, 1))
    return f"{100 * taken / branches:.1f} % of {branches:,} branches" if branches else "no branches"


def taken_branches(root, build):
    """By file: [taken, all]; and by (file, line, number in the line) how often the branch was taken."""
    taken = {}
    for folder, _, files in os.walk(build):
        for name in files:
            if name.endswith(".gcda"):
                add_branches(os.path.join(folder, name), root, taken)
    figures = {}
    for (file, _, _), count in taken.items():
        sums = figures.setdefault(file, [0, 0])
        sums[0] += count > 0
        sums[1] += 1
    return figures, taken


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
