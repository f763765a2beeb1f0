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
# One sentence for what is missing: need WHAT_TO_DO TOOL [ANOTHER THAT DOES IT...]
need() {
  advice=$1
  shift
  for tool; do if command -v "$tool" >/dev/null; then return; fi; done
  echo "ci.sh: no $1 here: $advice" >&2
  exit 1
}
need "install the package cmake" cmake
need "install the package @GCC@, or name a compiler in @CC@" "${@CC@:-@COMPILER@}" @GCC@ @CLANG@
[ -n "${CMAKE_GENERATOR:-}" ] || need "install the package make" make
need "install the package trainhost, or say TRAINHOST_PREFIX=/where/it/is ./ci.sh" trainhost
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release
cmake --build build
./test.sh build/@NAME@.so
