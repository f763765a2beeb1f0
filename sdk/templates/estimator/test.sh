#!/bin/sh
# test.sh FILE.so: compares the estimate for model/config.json with numbers computed by hand, then runs
# `plugins check`.
set -eu
plugin=$(realpath "$1")
cd "$(dirname "$0")"

# V 256, H 64, L 2, heads 4 and 2 of 16, I 128: embedding, layers (two norms; q, k, v, o; gate, up, down),
# norm, head.
layer=$((2 * 64 + 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128))
parameters=$((256 * 64 + 2 * layer + 64 + 256 * 64))
# Bytes of f32 activations: per token a layer keeps 4 rows of H, 2 of the width of q, 2 of the width of k, 3
# of I; 2 x 32 tokens.
activations=$((2 * 2 * 32 * (4 * 64 + 2 * 64 + 2 * 32 + 3 * 128) * 4))

trainhost plan run.toml --plugin-path "$(dirname "$plugin")" --estimator=@NAME@ --json >plan.json
bytes() { tr -d ' \n' <plan.json | grep -o "\"name\":\"$1\",\"bytes\":[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }
expect() {
  [ "$(bytes "$1")" = "$2" ] ||
    { echo "$1: expected $2 (computed by hand), the plugin reports $(bytes "$1")" >&2; exit 1; }
  echo "$1 $2"
}
expect weights $((parameters * 4))
expect gradients $((parameters * 4))
expect optimizer_state $((parameters * 8))
expect activations $activations
rm plan.json
[ "$(nm -D --defined-only "$plugin" | wc -l)" = 1 ] ||
  { echo "more than one exported symbol: nm -D $plugin" >&2; exit 1; }

if trainhost plugins --help | grep -q '^  check'; then
  trainhost plugins check "$plugin" --level 5 --deadline 60
fi
echo "@NAME@: all good"
