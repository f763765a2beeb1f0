#!/bin/sh
# Builds @NAME@ without network, holds it against numbers done by hand, and lets the host's own checks try it. Where trainhost
# is not in a standard place: TRAINHOST_PREFIX=/where/it/is ./ci.sh
set -eu
cd "$(dirname "$0")"
PATH=${TRAINHOST_PREFIX:+$TRAINHOST_PREFIX/bin:}$PATH
export PATH
# One sentence for what is missing: need WHAT_TO_DO TOOL [ANOTHER THAT DOES IT...]
need() {
  advice=$1
  shift
  for tool; do if command -v "$tool" >/dev/null; then return; fi; done
  echo "ci.sh: no $1 here: $advice" >&2
  exit 1
}
need "install the package cargo (Rust 1.63 or later will do)" cargo
need "cargo links with it, install the package gcc" cc
need "install the package trainhost, or say TRAINHOST_PREFIX=/where/it/is ./ci.sh" trainhost
cargo build --release --offline
mkdir -p build
cp "${CARGO_TARGET_DIR:-target}/release/lib@CRATE@.so" build/@NAME@.so
./test.sh build/@NAME@.so
