#!/usr/bin/env bash
# tutorial_test.sh PREFIX WORK DOCS: executes every tutorial of DOCS in an empty folder with the installed
# files only. In the markdown, a fence "```LANG file=PATH" is written to that file, "```sh" is executed, and
# every line of a "```text" must be in the output of the commands before it (consecutive spaces count as one;
# "..." matches anything). rust.md is skipped without cargo.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 -B "$(dirname "$0")/tutorial.py" "$@"
