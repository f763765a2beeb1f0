#!/usr/bin/env bash
# scaffolds_test.sh PREFIX WORK: the six projects of `plugins new`, made outside the source tree against the installed SDK. Each runs
# its own ci.sh (build, numbers by hand, plugins check), is listed as ok, and is planned with or trained by. Rust is skipped by
# name without cargo. Then: nothing is ever overwritten, and wrong words get the nearest right one.
set -euo pipefail
prefix=$1 work=$2
rm -rf "$work"; mkdir -p "$work"; cd "$work"
export TRAINHOST_PREFIX=$prefix PATH=$prefix/bin:$PATH CARGO_TARGET_DIR=$work/target
unset TRAINHOST_PLUGIN_PATH || true
fail() { echo "FAILED: $*"; exit 1; }

for lang in c c++ rust; do
  if [ $lang = rust ] && ! command -v cargo >/dev/null; then echo "skipped: rust (no cargo)"; continue; fi
  for kind in estimator trainer; do
    name=acme-$kind
    trainhost plugins new "$name" --kind=$kind --lang=$lang --family=convo --dir "$lang-$kind" >/dev/null
    ! grep -rn '@[A-Z]*@' "$lang-$kind" --exclude-dir=vendor || fail "$lang $kind: a word was left unfilled"
    "$lang-$kind/ci.sh" >"$lang-$kind.log" 2>&1 || { cat "$lang-$kind.log"; fail "$lang $kind: ci.sh"; }
    grep -q "$name .* ok" <<<"$(trainhost plugins list -v --plugin-path "$work/$lang-$kind/build")" || fail "$lang $kind: not listed as ok"
    tail -n 2 "$lang-$kind.log" | sed "s/^/$lang $kind: /"
  done
done

# A number by hand that is off by one is noticed: the projects' own tests can fail.
sed -i 's/(2 \* 64 + 64/(2 * 64 + 1 + 64/' c-estimator/test.sh
if PATH=$prefix/bin:$PATH c-estimator/test.sh c-estimator/build/acme-estimator.so >wrong.log 2>&1; then fail "a wrong number passed"; fi
grep -q 'by hand' wrong.log || fail "no reason for a wrong number"

refused() {  # refused TEXT WORDS...: exit 2 with that text
  local text=$1 status=0; shift
  trainhost plugins new "$@" >out.log 2>&1 || status=$?
  [ $status = 2 ] && grep -qF -- "$text" out.log || { cat out.log; fail "exit $status, wanted 2 and '$text' for: $*"; }
}
refused "did you mean 'acme-conv'?" 'Acme Conv' --kind=estimator --lang=c
refused "did you mean 'estimator'?" x --kind=estimater --lang=c
refused "--lang is missing" x --kind=trainer
refused "did you mean '--dir'?" x --kind=trainer --lang=c --dri=x
refused "did you mean 'c++'?" x --kind=trainer --lang=cpp
refused "trainhost plugins new --help"
refused "did you mean 'rust'?" x --kind=trainer --lang=rst
refused "word of CMake or Cargo" test --kind=trainer --lang=c
refused "did you mean 'my-family'?" x --kind=estimator --lang=c --family=My-Family
echo mine >c-estimator/run.toml
refused "exists and is not empty: nothing was written" x --kind=trainer --lang=c --dir c-estimator
[ "$(cat c-estimator/run.toml)" = mine ] || fail "a file was overwritten"
# A name that is a type of the SDK gives a project that builds all the same.
trainhost plugins new size --kind=estimator --lang=c++ >/dev/null && size/ci.sh >size.log 2>&1 || { tail -n 20 size.log; fail "a plugin of the name 'size'"; }
# No tools: one sentence that says what to install, not a screen of CMake.
mkdir bare; for tool in sh dirname; do ln -s "$(command -v $tool)" bare/; done
lacking() {  # lacking TEXT PROJECT: its ci.sh, with the tools of bare alone
  local status=0; env -i PATH="$work/bare" "$2/ci.sh" >out.log 2>&1 || status=$?
  [ $status = 1 ] && [ "$(wc -l <out.log)" = 1 ] && grep -qF -- "$1" out.log || { cat out.log; fail "exit $status, wanted 1 and '$1'"; }
}
lacking "no cmake here" size
ln -s "$(command -v cmake)" bare/
lacking "no c++ here: install the package g++" size
trainhost plugins new bare-rust --kind=estimator --lang=rust >/dev/null
lacking "no cargo here" bare-rust
# What is generated names no place of this machine.
! grep -rn -e "$prefix" -e "$work" size/.github size/*.sh bare-rust/.github bare-rust/*.sh c-estimator/.github || fail "a path of this machine in a project"
grep -q "Note: .*/llama.so already has the id 'llama'" <<<"$(trainhost plugins new llama --kind=estimator --lang=c)" || fail "no word on an id that is taken"
! grep -q Note <<<"$(trainhost plugins new nobodys --kind=estimator --lang=c)" || fail "a note on an id that is free"
echo x >plain
refused "exists and is no folder" x --kind=trainer --lang=c --dir plain
