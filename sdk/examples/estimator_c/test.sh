#!/bin/sh
# test.sh TRAINHOST FILE.so: compares the estimate for config.json with numbers computed by hand, then runs
# `plugins check`.
set -eu
trainhost=$1 plugin=$(realpath "$2")
cd "$(dirname "$0")"
fail() { echo "glacier: $1" >&2; exit 1; }
plan() {
  "$trainhost" plan run.toml --plugin-path "$(dirname "$plugin")" --estimator=glacier --json "$@" | tr -d ' \n'
}
bytes() { grep -o "\"name\":\"$1\",\"bytes\":[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
expect() {  # expect NAME BYTES ARGUMENTS...: bytes of a component, in a plan with these arguments
  name=$1 wanted=$2; shift 2
  found=$(plan "$@" | bytes "$name")
  [ "$found" = "$wanted" ] || fail "$name: expected $wanted, the plugin reports $found ($*)"
  echo "$name $wanted $*"
}

# V 256, H 64, L 6, U 2, heads 4 and 2 of 16, I 128: a layer has two norms; q, k, v, o; gate, up, down.
layer=$((2 * 64 + 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128))
parameters=$((256 * 64 + 2 * layer + 64 + 256 * 64))
token=$((4 * 64 + 2 * 64 + 2 * 32 + 3 * 128))   # numbers that a layer keeps per token, for 2 x 32 tokens
expect weights $((parameters * 4))
expect gradients $((parameters * 4))
expect optimizer_state $((parameters * 8))
expect activations $((6 * 2 * 32 * token * 4))
expect activations $((2 * 32 * (6 * 64 + token) * 4)) --set train.recompute=full
expect optimizer_state $((parameters * 4)) --set optimizer.name=sgd-momentum
"$trainhost" plugins check "$plugin" --level 5 --deadline 60
echo "glacier: all good"
