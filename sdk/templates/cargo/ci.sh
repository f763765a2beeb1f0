#!/bin/sh
# Builds @NAME@ without network, holds it against numbers done by hand, and lets the host's own checks try it. Where trainhost
# is not in a standard place: TRAINHOST_PREFIX=/where/it/is ./ci.sh
set -eu
cd "$(dirname "$0")"
PATH=${TRAINHOST_PREFIX:+$TRAINHOST_PREFIX/bin:}$PATH
export PATH
cargo build --release --offline
mkdir -p build
cp "${CARGO_TARGET_DIR:-target}/release/lib@CRATE@.so" build/@NAME@.so
./test.sh build/@NAME@.so
