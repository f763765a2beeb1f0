#!/bin/sh
# test.sh FILE.so: trains 40 steps twice and checks the losses and the memory, then runs `plugins check`.
set -eu
plugin=$(realpath "$1")
cd "$(dirname "$0")"
fail() { echo "@NAME@: $1" >&2; exit 1; }
train() { rm -rf runs; trainhost train run.toml --plugin-path "$(dirname "$plugin")" --no-fallback --json >"$1"; }
losses() { grep '"event":"step"' "$1" | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" first.jsonl | tail -n 1; }

train first.jsonl
# Small random weights give nearly equal probabilities for 256 bytes: the first loss is ln 256 = 5.545, then
# it decreases.
losses first.jsonl |
  awk 'NR == 1 && ($1 < 5.5 || $1 > 5.6) { exit 1 } { last = $1 } END { exit !(NR == 40 && last < 4.5) }' ||
  fail "the loss does not start at ln 256 and decrease below 4.5"
[ "$(number predicted_bytes)" = "$(number measured_bytes)" ] ||
  fail "plan() reports $(number predicted_bytes) bytes, measured are $(number measured_bytes)"
train second.jsonl
[ "$(losses first.jsonl)" = "$(losses second.jsonl)" ] || fail "two runs with the same seed differ"
echo "loss $(losses first.jsonl | sed -n '1p;$p' | tr '\n' ' ') predicted = measured = $(number predicted_bytes) bytes"
rm -rf first.jsonl second.jsonl runs
[ "$(nm -D --defined-only "$plugin" | wc -l)" = 1 ] || fail "more than one exported symbol: nm -D $plugin"

if trainhost plugins --help | grep -q '^  check'; then
  trainhost plugins check "$plugin" --level 5 --deadline 60
fi
echo "@NAME@: all good"
