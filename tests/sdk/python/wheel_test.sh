#!/usr/bin/env bash
# wheel_test.sh SOURCE WORK: `tools/dev wheel` builds a wheel of at most 40 MB for manylinux_2_27; every library that its
# files need is inside or belongs to a bare system, and no symbol needs a newer glibc; installed in an empty environment,
# it plans, trains and is listed by pip. Skipped without pip or without the packages that it needs.
set -euo pipefail
source=$1 work=$2
fail() { echo "FAILED: $*"; exit 1; }
python3 -m venv --help >/dev/null 2>&1 || { echo "skipped: no python3 with venv"; exit 77; }
rm -rf "$work"; mkdir -p "$work"; cd "$work"
python3 -m venv python
python/bin/pip download -q --no-deps -d ignored scikit-build-core >/dev/null 2>&1 ||
  { echo "skipped: pip finds no packages"; exit 77; }
"$source/tools/dev" wheel >log 2>&1 || { tail -n 40 log; fail "tools/dev wheel"; }
wheel=$(ls "$source"/build-wheel/dist/*.whl)
[ "$(stat -c %s "$wheel")" -le 40000000 ] || fail "$wheel has $(stat -c %s "$wheel") bytes"
[[ $wheel == *-manylinux_2_27_x86_64.whl ]] || fail "the platform of $wheel"
python/bin/pip install -q --no-deps --no-index "$wheel"
packages=$(python/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')

# Every library by name: of the wheel, or of a system without further packages. zlib is on every system (dpkg and rpm
# need it), and auditwheel leaves it outside.
# Not the C++ library: the oldest of these systems have one that lacks symbols.
bare=' libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 libgcc_s.so.1 libz.so.1 ld-linux-x86-64.so.2 '
bare+=' libmpi.so.40 libmpich.so.12 '
for file in $(find "$packages"/trainhost* -type f \( -name '*.so*' -o -path '*/bin/trainhost' \)); do
  for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [ -e "$packages/trainhost.libs/$library" ] || [[ $bare == *" $library "* ]] ||
      fail "$(basename "$file") needs $library, which is not in the wheel"
  done
  newest=$(readelf -VW "$file" | grep -o 'Name: GLIBC_[0-9.A-Z]*' | sed 's/.*GLIBC_//' | sort -V | tail -n 1)
  [ "$(printf '%s\n' 2.27 "$newest" | sort -V | tail -n 1)" = 2.27 ] ||
    fail "$(basename "$file") needs glibc $newest"
done
export TRAINHOST_CACHE=$work/cache PATH=$work/python/bin:$PATH
unset TRAINHOST_PLUGIN_PATH
grep -q '"total_bytes"' <<<"$(trainhost plan --json)" || fail plan
trainhost train -q --steps 2 --set output.dir="$work/run" || fail train
# The module, in this process of Python; MPI, CUDA and pandas are not needed.
(cd "$work" && python/bin/python -) <<'END' || fail "the module"
import trainhost
report = trainhost.plan(model="llama-3-8b", device="h100-80gb")
assert report.fits and report.estimate.kind == "exact" and report.backend == "cuda", report
run = trainhost.read_run("run")
assert run.summary["memory"]["predicted_bytes"] == run.plan.total_bytes
END
if python/bin/pip install -q uv >/dev/null 2>&1; then
  export UV_TOOL_DIR=$work/uv/tools UV_TOOL_BIN_DIR=$work/uv/bin UV_CACHE_DIR=$work/uv/cache
  python/bin/uv tool install -q --offline --python python/bin/python "$wheel" || fail "uv tool install"
  grep -q '"total_bytes"' <<<"$("$work/uv/bin/trainhost" plan --json)" || fail "the command that uv installed"
else
  echo "skipped: uv"
fi
[ -e "$packages/trainhost/include/trainhost/trainhost.h" ] || fail "no headers"
ls "$packages"/trainhost-*.dist-info/licenses/*openblas* >/dev/null || fail "no licence of OpenBLAS"

# One clear message: another platform, a missing program.
cp "$wheel" trainhost-0.1.0-py3-none-macosx_11_0_arm64.whl
if python/bin/pip install --no-deps --no-index trainhost-*macosx*.whl >refused 2>&1; then fail "a wheel for macOS"; fi
grep -q 'is not a supported wheel on this platform' refused || { cat refused; fail "message for another platform"; }
mv "$packages/trainhost/bin/trainhost" program
status=0; trainhost plan >missing 2>&1 || status=$?
[ $status = 1 ] && [ "$(wc -l <missing)" = 1 ] && grep -q 'install the wheel again' missing ||
  { cat missing; fail "message for a missing program"; }
mv program "$packages/trainhost/bin/trainhost"
chmod -x "$packages/trainhost/bin/trainhost"
status=0; trainhost plan >denied 2>&1 || status=$?
[ $status = 1 ] && [ "$(wc -l <denied)" = 1 ] && grep -q 'cannot be started: Permission denied' denied ||
  { cat denied; fail "message for a program that cannot be started"; }
tail -n 2 log
