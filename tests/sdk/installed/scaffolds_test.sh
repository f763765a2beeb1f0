#!/usr/bin/env bash
# scaffolds_test.sh PREFIX WORK: the six projects of `plugins new`, created outside of the source tree, with
# the installed SDK. Each runs its own ci.sh (build, numbers computed by hand, plugins check) and is listed as
# ok. Rust is skipped without cargo. Then: existing files are never overwritten, and a misspelt argument gets
# a suggestion.
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
    ! grep -rn '@[A-Z]*@' "$lang-$kind" --exclude-dir=vendor || fail "$lang $kind: a placeholder was not replaced"
    "$lang-$kind/ci.sh" >"$lang-$kind.log" 2>&1 || { cat "$lang-$kind.log"; fail "$lang $kind: ci.sh"; }
    grep -q "$name .* ok" <<<"$(trainhost plugins list -v --plugin-path "$work/$lang-$kind/build")" ||
      fail "$lang $kind: not listed as ok"
    tail -n 2 "$lang-$kind.log" | sed "s/^/$lang $kind: /"
  done
done

# The projects' own tests detect a wrong number.
sed -i 's/(2 \* 64 + 64/(2 * 64 + 1 + 64/' c-estimator/test.sh
if PATH=$prefix/bin:$PATH c-estimator/test.sh c-estimator/build/acme-estimator.so >wrong.log 2>&1; then
  fail "a wrong number passed"
fi
grep -q 'by hand' wrong.log || fail "no reason for a wrong number"

rejected() {  # rejected TEXT ARGUMENTS...: exit code 2 with that text
  local text=$1 status=0; shift
  trainhost plugins new "$@" >out.log 2>&1 || status=$?
  [ $status = 2 ] && grep -qF -- "$text" out.log || { cat out.log; fail "exit $status, wanted 2 and '$text' for: $*"; }
}
rejected "did you mean 'acme-conv'?" 'Acme Conv' --kind=estimator --lang=c
rejected "did you mean 'estimator'?" x --kind=estimater --lang=c
rejected "--lang is missing" x --kind=trainer
rejected "did you mean '--dir'?" x --kind=trainer --lang=c --dri=x
rejected "did you mean 'c++'?" x --kind=trainer --lang=cpp
rejected "trainhost plugins new --help"
rejected "did you mean 'rust'?" x --kind=trainer --lang=rst
rejected "is reserved by CMake, Cargo or the project" test --kind=trainer --lang=c
rejected "did you mean 'my-family'?" x --kind=estimator --lang=c --family=My-Family
echo mine >c-estimator/run.toml
rejected "is not empty; nothing was written" x --kind=trainer --lang=c --dir c-estimator
[ "$(cat c-estimator/run.toml)" = mine ] || fail "a file was overwritten"
# A project whose name is a type of the SDK builds as well.
trainhost plugins new size --kind=estimator --lang=c++ >/dev/null && size/ci.sh >size.log 2>&1 ||
  { tail -n 20 size.log; fail "a plugin with the name 'size'"; }
# Missing tools: one sentence that says what to install.
mkdir bare; for tool in sh dirname; do ln -s "$(command -v $tool)" bare/; done
lacking() {  # lacking TEXT PROJECT: runs its ci.sh with only the tools of bare
  local status=0; env -i PATH="$work/bare" "$2/ci.sh" >out.log 2>&1 || status=$?
  [ $status = 1 ] && [ "$(wc -l <out.log)" = 1 ] && grep -qF -- "$1" out.log ||
    { cat out.log; fail "exit $status, wanted 1 and '$1'"; }
}
lacking "cmake not found" size
ln -s "$(command -v cmake)" bare/
lacking "c++ not found: install the package g++" size
trainhost plugins new bare-rust --kind=estimator --lang=rust >/dev/null
lacking "cargo not found" bare-rust
# Generated files contain no path of this machine.
! grep -rn -e "$prefix" -e "$work" size/.github size/*.sh bare-rust/.github bare-rust/*.sh c-estimator/.github ||
  fail "a path of this machine in a project"
grep -q "Note: .*/llama.so already has the id 'llama'" <<<"$(trainhost plugins new llama --kind=estimator --lang=c)" ||
  fail "no note about an id that is in use"
! grep -q Note <<<"$(trainhost plugins new unused-id --kind=estimator --lang=c)" ||
  fail "a note about an id that is not in use"
echo x >plain
rejected "exists and is not a directory" x --kind=trainer --lang=c --dir plain
