#!/bin/sh
# Builds @NAME@, then runs test.sh. Needs the installed SDK; if it is not in a standard location:
# TRAINHOST_PREFIX=/path/to/trainhost ./ci.sh
set -eu
cd "$(dirname "$0")"
if [ -n "${TRAINHOST_PREFIX:-}" ]; then
  CMAKE_PREFIX_PATH=$TRAINHOST_PREFIX
  PATH=$TRAINHOST_PREFIX/bin:$PATH
  export CMAKE_PREFIX_PATH PATH
fi
# need HINT TOOL [ALTERNATIVE...]: exits with a message and the hint if none of the tools exists.
need() {
  hint=$1
  shift
  for tool; do if command -v "$tool" >/dev/null; then return; fi; done
  echo "ci.sh: $1 not found: $hint" >&2
  exit 1
}
need "install the package cmake" cmake
need "install the package @GCC@, or set @CC@ to a compiler" "${@CC@:-@COMPILER@}" @GCC@ @CLANG@
[ -n "${CMAKE_GENERATOR:-}" ] || need "install the package make" make
need "install the package trainhost, or run TRAINHOST_PREFIX=/path/to/trainhost ./ci.sh" trainhost
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release
cmake --build build
./test.sh build/@NAME@.so
