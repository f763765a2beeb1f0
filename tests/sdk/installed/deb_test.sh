#!/usr/bin/env bash
# deb_test.sh BUILD WORK: builds the three Debian packages and unpacks them to an empty root. Checks the
# metadata of each package, and that the unpacked program plans and trains. Skipped without dpkg.
set -euo pipefail
build=$1 work=$2
command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null ||
  { echo "skipped: no dpkg-deb or dpkg-shlibdeps (dpkg-dev)"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
rm -rf "$work"; mkdir -p "$work/root"; cd "$work"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" >cpack.log 2>&1 ||
  { tail -n 30 cpack.log; fail cpack; }
for name in trainhost trainhost-plugins trainhost-sdk-dev; do
  deb=$(ls packages/"${name}"_*.deb) || fail "no package $name"
  [ "$(dpkg-deb -f "$deb" Package)" = "$name" ] || fail "$deb: wrong package name"
  dpkg-deb -c "$deb" >"$name.files"
  grep -q "./usr/share/doc/$name/copyright" "$name.files" &&
    grep -q "./usr/share/doc/$name/changelog" "$name.files" || fail "$name: no copyright or changelog"
  ! grep -q '^d....w\|^d.......w' <<<"$(awk '{print $1}' "$name.files")" ||
    fail "$name: a folder is writable by other users"
  dpkg-deb -x "$deb" root
  echo "$name $(stat -c %s "$deb") bytes, depends: $(dpkg-deb -f "$deb" Depends)"
done
grep -q 'libc6' <<<"$(dpkg-deb -f packages/trainhost_*.deb Depends)" || fail "trainhost does not depend on libc6"
grep -q 'trainhost (=' <<<"$(dpkg-deb -f packages/trainhost-plugins_*.deb Depends)" ||
  fail "plugins do not depend on their program"
if grep -q openblas <<<"$(ldd "$build/lib/trainhost/engines/cpu-openblas.so" 2>/dev/null)"; then
  grep -q 'libopenblas' <<<"$(dpkg-deb -f packages/trainhost-plugins_*.deb Depends)" ||
    fail "plugins do not depend on OpenBLAS"
fi
grep -q 'usr/include/trainhost/trainhost.h' trainhost-sdk-dev.files || fail "sdk: no headers"
for file in core/executor/trainer.hpp core/executor/kernel_check.hpp core/step/program.hpp; do
  grep -q "usr/include/trainhost-plan/$file" trainhost-sdk-dev.files || fail "sdk: no $file"
done
grep -q 'libtrainhost-executor\.a$' trainhost-sdk-dev.files &&
  grep -q 'libtrainhost-plan\.a$' trainhost-sdk-dev.files || fail "sdk: no archive"
! grep -q 'usr/include\|\.a$' trainhost.files trainhost-plugins.files || fail "headers outside of -dev"
# Purged, the packages leave nothing but the database of dpkg. Installed to a root of its own.
as_root=()
[ "$(id -u)" = 0 ] || as_root=(fakeroot)
if command -v "${as_root[0]:-dpkg}" >/dev/null; then
  mkdir -p purged/var/lib/dpkg/info purged/var/lib/dpkg/updates
  touch purged/var/lib/dpkg/status purged/var/lib/dpkg/available
  database() { PATH=$PATH:/usr/sbin:/sbin "${as_root[@]}" dpkg --root="$work/purged" --force-depends,not-root \
    --log=/dev/null "$@" >dpkg.log 2>&1 || { cat dpkg.log; fail "dpkg $1"; }; }
  database --install packages/*.deb
  purged/usr/bin/trainhost plugins list --json >listed || fail "the program of the installed packages"
  names=$(sed -n 's/^Package: //p' purged/var/lib/dpkg/status)
  grep -q '"name": "llama"' listed && [ "$(wc -w <<<"$names")" -ge 3 ] || fail "installed packages: $names"
  # shellcheck disable=SC2086
  database --purge $names
  left=$(find purged -mindepth 1 -not -path 'purged/var*' -not -path purged/usr)
  [ -z "$left" ] || fail "purge leaves: $left"
else
  echo "skipped: purge (neither root nor fakeroot)"
fi
grep -q '"kind": "exact"' <<<"$(root/usr/bin/trainhost plan --json --estimator=llama)" ||
  fail "no plan in the unpacked root"
(cd "$work" && root/usr/bin/trainhost train --steps 2 -q --set output.dir="$work/run") ||
  fail "no training in the unpacked root"
# A plugin author with these packages: builds the installed example by find_package and by pkg-config; the
# packaged program lists it.
example=root/usr/share/doc/trainhost-sdk-dev/examples/estimator_c
CMAKE_PREFIX_PATH=$work/root/usr cmake -S "$example" -B built >author.log 2>&1 &&
  cmake --build built >>author.log 2>&1 || { cat author.log; fail "the example by find_package"; }
export PKG_CONFIG_PATH=$work/root/usr/lib/pkgconfig
mkdir by-hand
# shellcheck disable=SC2046
cc -std=c11 $(pkg-config --cflags trainhost-sdk) "$example/glacier.c" $(pkg-config --libs trainhost-sdk) \
  -o by-hand/glacier.so || fail "the example by pkg-config"
for folder in built by-hand; do
  grep -q 'glacier .* ok' <<<"$(root/usr/bin/trainhost plugins list --plugin-path "$work/$folder")" ||
    fail "the example in $folder is not listed as ok"
done
grep -q 'usr/share/man/man1/trainhost-plan\.1' trainhost.files &&
  grep -q 'usr/share/man/man5/trainhost-run-file\.5' trainhost.files || fail "trainhost: no manual pages"
grep -q 'usr/share/trainhost/run\.schema\.json' trainhost.files || fail "trainhost: no JSON Schema of run files"
if command -v lintian >/dev/null; then
  # A build that is not configured for /usr installs to lib, where cross-compilers do not look (preset deb: they do).
  lintian --fail-on error,warning --suppress-tags pkg-config-unavailable-for-cross-compilation packages/*.deb ||
    fail lintian
else
  echo "skipped: lintian"
fi
