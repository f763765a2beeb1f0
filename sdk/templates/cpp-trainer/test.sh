#!/bin/sh
# test.sh FILE.so: compares every kernel with the reference, trains 40 steps twice and checks the losses and
# the memory, then runs `plugins check`.
set -eu
plugin=$(realpath "$1")
cd "$(dirname "$0")"
fail() { echo "@NAME@: $1" >&2; exit 1; }
train() { rm -rf runs; trainhost train run.toml --plugin-path "$(dirname "$plugin")" --no-fallback --json >"$1"; }
losses() { grep '"event":"step"' "$1" | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" first.jsonl | tail -n 1; }

"${plugin%.so}-check" || fail "a kernel is wrong"
train first.jsonl
# Small random weights give nearly equal probabilities for 256 bytes: the first loss is about ln 256 = 5.545,
# then it decreases.
losses first.jsonl |
  awk 'NR == 1 && ($1 < 5.3 || $1 > 5.9) { exit 1 } { last = $1 } END { exit !(NR == 40 && last < 4) }' ||
  fail "the loss does not start near ln 256 and decrease below 4"
[ "$(number predicted_bytes)" = "$(number measured_bytes)" ] ||
  fail "predicted $(number predicted_bytes) bytes, measured $(number measured_bytes)"
train second.jsonl
[ "$(losses first.jsonl)" = "$(losses second.jsonl)" ] || fail "two runs with the same seed differ"
echo "loss $(losses first.jsonl | sed -n '1p;$p' | tr '\n' ' ') predicted = measured = $(number predicted_bytes) bytes"
rm -rf first.jsonl second.jsonl runs
[ "$(nm -D --defined-only "$plugin" | wc -l)" = 1 ] || fail "more than one exported symbol: nm -D $plugin"

if trainhost plugins --help | grep -q '^  check'; then
  trainhost plugins check "$plugin" --level 5 --deadline 60
fi
echo "@NAME@: all good"
