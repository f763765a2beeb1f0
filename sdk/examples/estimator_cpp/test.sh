#!/bin/sh
# test.sh TRAINHOST FILE.so: compares the estimate for config.json with numbers computed by hand, then runs
# `plugins check`.
set -eu
trainhost=$1 plugin=$(realpath "$2")
cd "$(dirname "$0")"
fail() { echo "ebb: $1" >&2; exit 1; }
plan() { "$trainhost" plan run.toml --plugin-path "$(dirname "$plugin")" --estimator=ebb --json "$@" | tr -d ' \n'; }
bytes() { grep -o "\"name\":\"$1\",\"bytes\":[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
expect() {  # expect NAME BYTES ARGUMENTS...: bytes of a component, in a plan with these arguments
  name=$1 wanted=$2; shift 2
  found=$(plan "$@" | bytes "$name")
  [ "$found" = "$wanted" ] || fail "$name: expected $wanted, the plugin reports $found ($*)"
  echo "$name $wanted $*"
}

# V 256, H 64, L 4 of which one attends, N 16, heads 4 and 2 of 16, I 128, 2 x 128 tokens.
recurrence=$((64 + 64 * 2 * 64 + 64 * 64 + 64 * 2 * 16 + 64 * 64))   # norm, value and path, gate, write and read, out
attention=$((64 + 64 * (2 * 64 + 2 * 32)))
mlp=$((64 + 3 * 64 * 128))
parameters=$((2 * 256 * 64 + 64 + 3 * recurrence + attention + 4 * mlp))
rows=$((3 * (5 * 64 + 64 + 2 * 16) + (2 * 64 + 2 * 64 + 2 * 32) + 4 * (2 * 64 + 3 * 128)))
states=$((3 * 2 * 2 * 64 * 16))   # 3 layers, 2 sequences, 2 chunks of 64 tokens
expect weights $((parameters * 4))
expect optimizer_state $((parameters * 8))
expect activations $((4 * (256 * rows + states)))
expect weights $((parameters * 2)) --set train.precision=bf16
expect activations $((2 * 256 * rows + 4 * states)) --set train.precision=bf16
# The plugin reads keys of config.json that the host does not know: a scalar gate has 63 columns less.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed 's/"channel"/"scalar"/' config.json >"$scratch/config.json"
expect weights $(((parameters - 3 * 64 * 63) * 4)) --set model.config="$scratch/config.json"
sed 's/"channel"/"tidal"/' config.json >"$scratch/config.json"
plan --set model.config="$scratch/config.json" >"$scratch/out" 2>&1 || true
grep -q 'gate in config.json is neither' "$scratch/out" || fail "no message for an invalid gate"
"$trainhost" plugins check "$plugin" --level 5 --deadline 60
echo "ebb: all good"
