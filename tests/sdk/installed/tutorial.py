"""Executes tutorials; tutorial_test.sh explains the fences."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.S | re.M)


def normalize(text):
    return re.sub(r"[ \t]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", text))


def first_missing_line(wanted, printed):
    """The first line of `wanted` that is not in `printed`, or None."""
    for line in filter(str.strip, normalize(wanted).splitlines()):
        if not re.search(".*".join(re.escape(part.strip()) for part in line.split("...")), normalize(printed)):
            return line
    return None


def execute(text, folder, environment):
    """Executes one tutorial in order. Returns the first failure or None, and how many steps it had."""
    printed, counts = "", {"files": 0, "commands": 0, "checks": 0}
    for language, path, body in FENCE.findall(text):
        if path:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(body)
            counts["files"] += 1
        elif language == "sh":
            # Each block starts in the working directory in which the previous block ended.
            script = "set -e\ncd \"$(cat %s)\"\n%s\npwd >%s\n" % (folder / ".cwd", body, folder / ".cwd")
            done = subprocess.run(
                ["bash", "-c", script],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=200,
            )
            printed = done.stdout
            counts["commands"] += len(body.strip().splitlines())
            if done.returncode != 0:
                return "exit %d of:\n%s\n%s" % (done.returncode, body, printed), counts
        elif language == "text":
            counts["checks"] += 1
            line = first_missing_line(body, printed)
            if line:
                return "no line '%s' in:\n%s" % (line, printed), counts
        else:
            return "unknown fence '%s'" % language, counts
    return None, counts


def main():
    prefix, work, docs = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    shutil.rmtree(work, ignore_errors=True)
    assert first_missing_line("a ... d\n", "a b  c d") is None and first_missing_line("a\nx\n", "a") == "x"
    failed = 0
    for tutorial in sorted(docs.glob("*.md")):
        text = tutorial.read_text()
        if tutorial.name == "README.md":
            continue
        if tutorial.name == "rust.md" and not shutil.which("cargo"):
            print("skipped: rust.md (no cargo)")
            continue
        folder = work / tutorial.stem
        folder.mkdir(parents=True)
        (folder / ".cwd").write_text(str(folder))
        environment = dict(
            os.environ,
            PATH="%s/bin:%s" % (prefix, os.environ["PATH"]),
            PKG_CONFIG_PATH="%s/lib/pkgconfig" % prefix,
            CMAKE_PREFIX_PATH=str(prefix),
        )
        environment.pop("TRAINHOST_PLUGIN_PATH", None)
        start = time.monotonic()
        reason, counts = execute(text, folder, environment)
        print("%s: %s, %.1f s, %s" % (tutorial.name, "FAILED" if reason else "ok", time.monotonic() - start,
                                      ", ".join("%d %s" % (n, what) for what, n in counts.items())))
        if reason or counts["commands"] == 0 or counts["checks"] == 0:
            print(reason or "the tutorial has no commands or no outputs")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
