#!/usr/bin/env bash
# reference_test.sh SDK WORK: sdk/reference is what the headers say, and the test can fail: a changed comment, a page too many, a
# field that the golden lacks, and a page that is gone are each found. Every name of the golden is on a page.
set -euo pipefail
sdk=$1 work=$2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
write() { python3 -B "$sdk/abi/reference.py" "$@"; }
write --check "$sdk"
for name in $(awk '$1 == "field" { print $5 } $1 == "constant" || $1 == "struct" || $1 == "function" { print $2 }' "$sdk"/abi/v1.*.txt | sort -u); do
  grep -qE "\`$name\`|^##+ .*$name" -r "$sdk/reference" || fail "no page speaks of $name"
done
broken() {  # broken WHAT COMMAND...: after the command, in a copy, --check fails
  local what=$1; shift
  rm -rf "$work"; mkdir -p "$work"; cp -r "$sdk/abi" "$sdk/include" "$sdk/reference" "$work"
  (cd "$work" && "$@")
  if write --check "$work" >/dev/null 2>&1; then fail "not found: $what"; fi
}
broken "a changed comment" sed -i 's/No I\/O, < 1 ms/No I\/O, < 2 ms/' include/trainhost/estimator.h
broken "a field without a golden" sed -i 's/  uint64_t chunks;/  uint64_t chunks, more;/' include/trainhost/trainer.h
broken "a page too many" touch reference/other.md
broken "a page that is gone" rm reference/model.md
rm -rf "$work"
echo "$(ls "$sdk/reference" | wc -l) pages are what the headers say"
