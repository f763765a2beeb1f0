#!/bin/sh
# Builds @NAME@ without network, then runs test.sh. If trainhost is not in a standard location:
# TRAINHOST_PREFIX=/path/to/trainhost ./ci.sh
set -eu
cd "$(dirname "$0")"
PATH=${TRAINHOST_PREFIX:+$TRAINHOST_PREFIX/bin:}$PATH
export PATH
# need HINT TOOL [ALTERNATIVE...]: exits with a message and the hint if none of the tools exists.
need() {
  hint=$1
  shift
  for tool; do if command -v "$tool" >/dev/null; then return; fi; done
  echo "ci.sh: $1 not found: $hint" >&2
  exit 1
}
need "install the package cargo (Rust 1.63 or later)" cargo
need "cargo needs it to link; install the package gcc" cc
need "install the package trainhost, or run TRAINHOST_PREFIX=/path/to/trainhost ./ci.sh" trainhost
cargo build --release --offline
mkdir -p build
cp "${CARGO_TARGET_DIR:-target}/release/lib@CRATE@.so" build/@NAME@.so
./test.sh build/@NAME@.so
