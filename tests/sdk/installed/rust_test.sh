#!/usr/bin/env bash
# rust_test.sh CRATE WORK: abi.rs and layout.rs match the headers (needs python3 and a C compiler), the tests
# of the crate and the example in its documentation pass, and a wrong offset does not compile.
set -euo pipefail
crate=$1 work=$2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 -B "$crate/mirror.py" --check
command -v cargo >/dev/null || { echo "skipped: no cargo"; exit 77; }
rm -rf "$work"; mkdir -p "$work"; cp -r "$crate" "$work/trainhost-sdk"; cd "$work/trainhost-sdk"
export CARGO_TARGET_DIR=$work/target
cargo test --offline 2>&1 | grep -E '^test |test result|warning|error' || true
cargo test --offline -q >/dev/null 2>&1
RUSTDOCFLAGS="-D rustdoc::broken-intra-doc-links" cargo doc --offline -q ||
  { echo "its documentation has dead links"; exit 1; }
sed -i 's/    pub micro_batch: u32,/    pub micro_batch: u64,/' src/abi.rs
if cargo check --offline -q 2>"$work/wrong.log"; then echo "a wrong type of th_run.micro_batch compiles"; exit 1; fi
grep -q 'assertion failed: offset_of!(th_run' "$work/wrong.log"
echo "a wrong abi.rs does not compile"
