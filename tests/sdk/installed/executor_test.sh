#!/usr/bin/env bash
# executor_test.sh PREFIX WORK EXAMPLES: builds a copy of sdk/examples/plain_trainer with the installed SDK
# only (find_package with COMPONENTS), runs kernel_check, every level of `plugins check`, and two training
# steps: predicted and measured bytes are equal. Then builds it by pkg-config with errors: a wrong kernel, a
# missing kernel (the compiler names it), an unknown component.
set -euo pipefail
prefix=$1 work=$2 examples=$3
rm -rf "$work"; mkdir -p "$work"; cd "$work"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig PATH=$prefix/bin:$PATH CMAKE_PREFIX_PATH=$prefix
unset TRAINHOST_PLUGIN_PATH || true
fail() { echo "FAILED: $*"; exit 1; }

cp -r "$examples/plain_trainer" plain
cmake -S plain -B plain/build >plain.log 2>&1 && cmake --build plain/build >>plain.log 2>&1 ||
  { cat plain.log; fail "plain_trainer does not build outside of the tree"; }
! grep -q 'warning:' plain.log || { cat plain.log; fail "headers of the SDK cause warnings"; }
plain/build/plain_check | tail -n 1
symbols=$(nm -D --defined-only plain/build/plain.so | awk '{print $3}')
[ "$symbols" = trainhost_plugin_v1 ] || fail "plain.so exports: $symbols"
trainhost plugins check plain/build/plain.so --level 10 --deadline 60 || fail "plugins check"

number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$2" | tail -n 1; }
trainhost train --plugin-path "$work/plain/build" --backend=plain --no-fallback --steps 2 \
  --set output.dir="$work/run" --json >train.jsonl 2>train.log || { cat train.log; fail train; }
[ "$(grep -c '"event":"step"' train.jsonl)" = 2 ] || fail "not two steps"
[ -n "$(number predicted_bytes train.jsonl)" ] &&
  [ "$(number predicted_bytes train.jsonl)" = "$(number measured_bytes train.jsonl)" ] ||
  fail "predicted $(number predicted_bytes train.jsonl), measured $(number measured_bytes train.jsonl)"
echo "trained: predicted = measured = $(number measured_bytes train.jsonl) bytes"

# kernel_check detects a wrong kernel, the compiler a missing kernel, CMake an unknown component.
cp -r plain wrong; rm -rf wrong/build
sed -i 's/sum += static_cast<double>(a.x\[i\]) \* a.x\[i\]/sum += a.x[i]/' wrong/plain_kernels.hpp
! cmp -s plain/plain_kernels.hpp wrong/plain_kernels.hpp || fail "sed did not change the kernel"
flags="-std=c++20 -O1 $(pkg-config --cflags trainhost-sdk) $(pkg-config --variable=plan_cflags trainhost-sdk)"
# shellcheck disable=SC2086
c++ $flags wrong/check.cpp $(pkg-config --variable=executor_libs trainhost-sdk) -o wrong/check || fail "by pkg-config"
if wrong/check sum_squares >wrong.log; then fail "kernel_check accepts a wrong kernel"; fi
grep -q '^WRONG sum_squares' wrong.log || { cat wrong.log; fail "the wrong kernel is not named"; }
sed -i 's/void swiglu(const/void swigloo(const/' wrong/plain_kernels.hpp
# shellcheck disable=SC2086
if c++ $flags -fsyntax-only wrong/check.cpp >missing.log 2>&1; then fail "a missing kernel compiles"; fi
grep -q 'missing kernel: void swiglu(const' missing.log ||
  { cat missing.log; fail "no message for the missing kernel"; }
mkdir bad
printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(bad CXX)' \
  'find_package(trainhost-sdk 1.0 REQUIRED COMPONENTS plan executer)' >bad/CMakeLists.txt
if cmake -S bad -B bad/build >bad.log 2>&1; then fail "the component 'executer' was accepted"; fi
grep -q 'executer' bad.log || { cat bad.log; fail "the unknown component is not named"; }
sed -i 's/executer/executor/' bad/CMakeLists.txt
cmake -S bad -B bad/build >bad.log 2>&1 || { cat bad.log; fail "COMPONENTS plan executor"; }
echo "a wrong kernel, a missing kernel and an unknown component are reported"
