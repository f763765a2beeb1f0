#!/usr/bin/env bash
# tutorial_test.sh PREFIX WORK DOCS: carries out every tutorial of DOCS as a reader would, in an empty folder with nothing but the
# installed files. In the markdown a fence "```LANG file=PATH" is that file, "```sh" is typed, and every line of a "```text" has to
# be in what the commands before it printed (spaces count as one; "..." stands for anything). rust.md is skipped without cargo.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 -B "$(dirname "$0")/tutorial.py" "$@"
