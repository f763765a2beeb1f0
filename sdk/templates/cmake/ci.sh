#!/bin/sh
# Builds @NAME@, holds it against numbers done by hand, and lets the host's own checks try it. Needs the installed SDK; where
# that is not in a standard place: TRAINHOST_PREFIX=/where/it/is ./ci.sh
set -eu
cd "$(dirname "$0")"
if [ -n "${TRAINHOST_PREFIX:-}" ]; then
  CMAKE_PREFIX_PATH=$TRAINHOST_PREFIX
  PATH=$TRAINHOST_PREFIX/bin:$PATH
  export CMAKE_PREFIX_PATH PATH
fi
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release
cmake --build build
./test.sh build/@NAME@.so
