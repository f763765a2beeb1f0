"""dockerfile_test.py SOURCE PACKAGES WORK: carries out the steps of the Dockerfile without Docker.

Every stage is an overlay on the file system of this machine, in a mount namespace of its own, so nothing outside WORK
changes. COPY copies, RUN runs in it, with two replacements: `apt-get install` checks that the named packages are
installed here, and installs package files by dpkg, whose dependencies may have other names here; `tools/dev deb` takes
the packages in the folder PACKAGES, because compiling takes minutes. Then the program is started as the user of the
image. Skipped (77) without root or overlays.
"""

import fnmatch
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

APT_GET = r"""#!/bin/sh
[ "$1" = install ] || exit 0
shift
for word; do
  case $word in
    -*) ;;
    *.deb) set -- "$@" "$word" ;;
    *) dpkg -s "$word" >/dev/null 2>&1 || { echo "E: Unable to locate package $word" >&2; exit 100; } ;;
  esac
  shift
done
[ $# = 0 ] || dpkg --force-depends -i "$@"
"""
USED = {"ARG", "FROM", "COPY", "WORKDIR", "RUN", "USER", "ENTRYPOINT", "CMD"}


class Failed(Exception):
    """A step failed; the text is the message."""


def instructions(text):
    """(line, name, argument) of every instruction; lines that end with a backslash are joined."""
    number = 1
    for part in re.split(r"(?<!\\)\n", text):
        words = part.replace("\\\n", " ").strip()
        if words and not words.startswith("#"):
            name, _, argument = words.partition(" ")
            if name not in USED:
                raise Failed(f"Dockerfile:{number}: this test does not know the instruction {name}")
            yield number, name, argument.strip()
        number += part.count("\n") + 1


def ignored(source):
    lines = (source / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class Stage:
    """The root of one stage while it is built."""

    def __init__(self, work, name):
        self.root = work / name / "root"
        for folder in ("root", "upper", "work"):
            (work / name / folder).mkdir(parents=True)
        options = f"lowerdir=/,upperdir={work / name / 'upper'},workdir={work / name / 'work'}"
        done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, self.root], capture_output=True)
        if done.returncode:
            print("skipped: no overlay can be mounted here:", done.stderr.decode().strip())
            sys.exit(77)
        for folder in ("proc", "dev"):
            subprocess.run(["mount", "--rbind", f"/{folder}", self.root / folder], check=True)
        stub = self.root / "usr/local/sbin/apt-get"  # the first folder of PATH in Debian's images
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(APT_GET)
        stub.chmod(0o755)
        self.folder, self.user, self.entry, self.command = "/", "root", [], []

    def path(self, word):
        return self.root / Path(self.folder, word).relative_to("/")

    def run(self, words):
        """Errors: Failed with the end of the output."""
        call = ["chroot", f"--userspec={self.user}", self.root, "sh", "-c", 'cd "$0" && exec "$@"', self.folder]
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
                     "DEBIAN_FRONTEND": "noninteractive"}  # fmt: skip
        done = subprocess.run([*call, *words], env=variables, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{' '.join(words)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout


def copy(stage, argument, source, stages):
    words = argument.split()
    other = re.fullmatch(r"--from=(\w+)", words[0])
    origin = stages[other[1]].root if other else source
    *patterns, target = words[1:] if other else words
    for pattern in patterns:
        if pattern == ".":
            patterns_out = shutil.ignore_patterns(*[p for p in ignored(source) if p not in (".", "")])
            shutil.copytree(source, stage.path(target), symlinks=True, dirs_exist_ok=True, ignore=patterns_out)
            continue
        found = glob.glob(str(origin) + "/" + pattern.lstrip("/"))
        if not found:
            raise Failed(f"COPY {argument}: no file {pattern}")
        stage.path(target).mkdir(parents=True, exist_ok=True)
        for file in found:
            shutil.copy2(file, stage.path(target))


def carry_out(source, packages, work):
    """Returns the last stage."""
    stages, stage, arguments = {}, None, {}
    for number, name, argument in instructions((source / "Dockerfile").read_text()):
        print(f"{name} {argument}", flush=True)
        try:
            if name == "ARG":
                arguments.update([argument.split("=", 1)])
            elif name == "FROM":
                base = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], argument.split()[0])
                if not fnmatch.fnmatch(base, "debian:*"):
                    raise Failed(f"the base {base} is not Debian")
                stage = Stage(work, f"stage{len(stages)}")
                stages[argument.split()[2] if " AS " in argument else str(len(stages))] = stage
            elif name == "COPY":
                copy(stage, argument, source, stages)
            elif name == "WORKDIR":
                stage.folder = argument
                stage.path(".").mkdir(parents=True, exist_ok=True)
            elif name == "RUN" and argument == "tools/dev deb":
                shutil.copytree(packages, stage.path("build-deb/packages"))
            elif name == "RUN":
                stage.run(["sh", "-ec", argument])
            elif name == "USER":
                stage.user = argument
            else:
                setattr(stage, {"ENTRYPOINT": "entry", "CMD": "command"}[name], json.loads(argument))
        except Failed as error:
            raise Failed(f"Dockerfile:{number}: {error}") from error
    return stage


def main():
    source, packages, work = (Path(word).resolve() for word in sys.argv[1:4])
    if os.geteuid():
        print("skipped: only root can mount an overlay")
        return 77
    if len(sys.argv) == 4:  # again, in a mount namespace of its own
        shutil.rmtree(work, ignore_errors=True)
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, "-B", *sys.argv, "inside"])
    try:
        image = carry_out(source, packages, work)
        if " sweep " not in image.run([*image.entry, *image.command]):
            raise Failed("the default command prints no help")
        if "does not fit" not in image.run(["sh", "-c", f"{image.entry[0]} plan --budget=1MiB || [ $? = 3 ]"]):
            raise Failed("the plan of a run that does not fit")
        image.run([*image.entry, "train", "-q", "--steps", "2", "--set", "train.backend=cpu"])
        summaries = list((image.path("runs")).glob("*/summary.json"))
        if image.user == "root" or not summaries or summaries[0].stat().st_uid == 0:
            raise Failed("the run was trained by root, or left nothing in the working directory")
        if list((image.root / "packages").glob("*")):
            raise Failed("package files are left in the image")
    except Failed as error:
        print("FAILED:", error)
        return 1
    print("trained as", image.user)
    return 0


if __name__ == "__main__":
    sys.exit(main())
