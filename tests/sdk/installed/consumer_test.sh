#!/usr/bin/env bash
# consumer_test.sh PREFIX WORK EXAMPLES: builds plugins with the installed SDK only. One estimator in C (gcc,
# clang), C++ (g++ with libstdc++, clang++ with libc++) and Rust, by pkg-config and by find_package: the host
# reports the same numbers for all, and each exports one symbol. Then a plugin that links trainhost::plan.
# Prints the name of each part that is skipped because of a missing tool.
set -euo pipefail
prefix=$1 work=$2 examples=$3
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"; mkdir -p "$work/plugins"; cd "$work"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig PATH=$prefix/bin:$PATH CMAKE_PREFIX_PATH=$prefix
unset TRAINHOST_PLUGIN_PATH || true
names=()

fail() { echo "FAILED: $*"; exit 1; }
project() {  # project NAME LANG: creates its sources in the folder NAME
  trainhost plugins new "$1" --kind=estimator --lang="$2" --family=convo >/dev/null
}
take() {  # take FILE: checks that it exports one symbol, and adds it to plugins/
  local symbols; symbols=$(nm -D --defined-only "$1" | awk '{print $3}')
  [ "$symbols" = trainhost_plugin_v1 ] || fail "$1 exports: $symbols"
  cp "$1" plugins/; names+=("$(basename "$1" .so)")
}
by_pkg_config() {  # by_pkg_config NAME LANG COMPILER FLAGS...
  local name=$1 lang=$2; shift 2
  project "$name" "$lang"
  local source; source=$(ls "$name/$name".c*)
  "$@" -O2 -Wall -Wextra -Werror $(pkg-config --cflags trainhost-sdk) "$source" $(pkg-config --libs trainhost-sdk) \
    -o "$name.so"
  take "$name.so"
}
by_cmake() {  # by_cmake NAME LANG OPTIONS...
  local name=$1 lang=$2; shift 2
  project "$name" "$lang"
  cmake -S "$name" -B "$name/build" -DCMAKE_BUILD_TYPE=Release "$@" >"$name.log" 2>&1 ||
    { cat "$name.log"; fail "$name: configure"; }
  cmake --build "$name/build" >>"$name.log" 2>&1 || { cat "$name.log"; fail "$name: build"; }
  take "$name/build/$name.so"
}

pkg-config --exists 'trainhost-sdk >= 1.0' || fail "pkg-config does not find trainhost-sdk"
by_pkg_config gcc-c c cc -std=c11
by_pkg_config gcc-cpp c++ c++ -std=c++17
by_cmake cmake-c c
by_cmake cmake-cpp c++
if command -v clang >/dev/null; then
  by_pkg_config clang-c c clang -std=c11
else
  echo "skipped: C with clang (no clang)"
fi
if command -v clang++ >/dev/null &&
  echo '#include <string>' | clang++ -stdlib=libc++ -xc++ -fsyntax-only - 2>/dev/null; then
  by_cmake clang-libcxx c++ -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS=-stdlib=libc++
  grep -q 'libc++.so' <<<"$(ldd plugins/clang-libcxx.so)" || fail "clang-libcxx is not linked to libc++"
else
  echo "skipped: C++ with libc++ (no clang++ with libc++-dev)"
fi
if command -v cargo >/dev/null; then
  project rust rust
  diff -r "$prefix/share/trainhost/sdk/rust/trainhost-sdk/src" rust/vendor/trainhost-sdk/src ||
    fail "the installed crate differs from the program's"
  (cd rust && CARGO_TARGET_DIR=$work/target cargo build --release --offline -q) || fail "rust: build"
  mv target/release/librust.so rust.so; take rust.so
else
  echo "skipped: Rust (no cargo)"
fi

# All plugins give the same numbers for one model and run; test.sh of the first compares them with numbers
# computed by hand.
cp -r gcc-c/model gcc-c/run.toml .
(cd gcc-c && ./test.sh ../plugins/gcc-c.so) || fail "gcc-c: numbers differ from those computed by hand"
for name in "${names[@]}"; do
  trainhost plan run.toml --plugin-path "$work/plugins" --estimator="$name" --json |
    sed "s/\"$name\"/\"NAME\"/; /budget_bytes/d; /plugin-path/d" >"$name.json"
  cmp gcc-c.json "$name.json" || { diff gcc-c.json "$name.json"; fail "$name: numbers differ from those of gcc-c"; }
done
echo "same numbers: ${names[*]}"

# Copies of the examples; their own tests compare numbers computed by hand.
for name in estimator_c estimator_cpp; do
  cp -r "$examples/$name" .
  cmake -S $name -B $name/build -DCMAKE_BUILD_TYPE=Release >$name.log 2>&1 &&
    cmake --build $name/build >>$name.log 2>&1 || { cat $name.log; fail "$name"; }
  ctest --test-dir $name/build --output-on-failure >>$name.log 2>&1 || { cat $name.log; fail "$name: its own test"; }
  echo "example: $name"
done

# CMake and the program accept a prefix with spaces. (The shell splits the output of pkg-config:
# sdk/README.md.)
cp -r "$prefix" "$work/a prefix"
CMAKE_PREFIX_PATH="$work/a prefix" cmake -S estimator_cpp -B "spaced build" -DCMAKE_BUILD_TYPE=Release \
  >spaced.log 2>&1 &&
  cmake --build "spaced build" >>spaced.log 2>&1 || { cat spaced.log; fail "a prefix with spaces"; }
grep -q 'ebb .* ok' <<<"$("$work/a prefix/bin/trainhost" plugins list --plugin-path "$work/spaced build")" ||
  fail "not listed from a prefix with spaces"
rm -rf "$work/a prefix"
echo "a prefix with spaces"

# Errors: a package of another major version, an unknown argument of trainhost_add_plugin, -ffast-math.
rejected() {  # rejected TEXT LINES...: a CMakeLists.txt with these lines fails with that text
  local text=$1; shift; rm -rf bad; mkdir bad
  printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(bad C)' "$@" >bad/CMakeLists.txt
  if cmake -S bad -B bad/build >bad.log 2>&1; then fail "accepted: $*"; fi
  grep -qF -- "$text" <<<"$(tr '\n' ' ' <bad.log | tr -s ' ')" || { cat bad.log; fail "no '$text' for: $*"; }
}
rejected 'version "2.0"' 'find_package(trainhost-sdk 2.0 REQUIRED)'
rejected "unknown argument 'SORCES'" 'find_package(trainhost-sdk 1.0 REQUIRED)' \
  'trainhost_add_plugin(x SOURCES x.c)' 'trainhost_add_plugin(y SORCES)'
rejected 'SOURCES is missing' 'find_package(trainhost-sdk 1.0 REQUIRED)' 'trainhost_add_plugin(x)'
rejected 'change the floating-point mode' 'find_package(trainhost-sdk 1.0 REQUIRED)' \
  'set(CMAKE_C_FLAGS -ffast-math)' 'trainhost_add_plugin(x SOURCES x.c)'

# trainhost::plan: the host's parameter count and its conversion of C structs, used by a plugin.
cp -r "$here/plan-user" .
cmake -S plan-user -B plan-user/build -DCMAKE_BUILD_TYPE=Release >plan.log 2>&1 &&
  cmake --build plan-user/build >>plan.log 2>&1 || { cat plan.log; fail "plan-user"; }
take plan-user/build/plan-user.so
weights() {
  trainhost plan --plugin-path "$work/plugins" --estimator="$1" --json | tr -d ' \n' |
    grep -o '"name":"weights","bytes":[0-9]*' | head -n 1
}
[ "$(weights plan-user)" = "$(weights llama)" ] || fail "plan-user: $(weights plan-user), llama: $(weights llama)"
echo "trainhost::plan: $(weights plan-user)"
