#!/usr/bin/env bash
# install.sh SOURCE BUILD PREFIX: installs the build as a package would (DESTDIR, another prefix), then moves
# it to PREFIX, so that the other tests use a location for which it was neither built nor installed. Fails if
# a file contains a path of this machine, or if `cmake --install` does not build what is missing.
set -euo pipefail
source=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.stage"
# After `tools/dev run` only the program is built. Here two libraries that no other test reads are removed; every other
# installed file of the build must be one whose absence makes the installation build it.
rm -f "$build"/lib/libtrainhost-{plan,executor}.a
installed=$(find "$build" -path "$build/tests" -prune -o -name cmake_install.cmake -exec cat {} + |
  grep -oE "\"$build/(bin|lib|sdk_docs)/[^\"]*\"" | sort -u)
[ "$(wc -l <<<"$installed")" -gt 10 ] || { echo "no installed files were found in $build"; exit 1; }
while read -r file; do
  case $file in */bin/trainhost\" | */sdk_docs/reference\") continue ;; esac  # built first; built with sdk_docs/checks
  grep -qF -- "$file" "$build/build_before_install.cmake" ||
    { echo "cmake --install does not build $file if it is missing"; exit 1; }
done <<<"$installed"
DESTDIR=$prefix.stage cmake --install "$build" --prefix /opt/th-original-prefix >/dev/null
mv "$prefix.stage/opt/th-original-prefix" "$prefix"
for library in plan executor; do
  [ -n "$(find "$prefix" -name "libtrainhost-$library.a")" ] ||
    { echo "libtrainhost-$library.a is not installed"; exit 1; }
done
left=$(find "$prefix.stage" -type f | head -n 3)
[ -z "$left" ] || { echo "installed outside of the prefix: $left"; exit 1; }
for path in "$source" "$build" /opt/th-original-prefix; do
  if found=$(grep -rlF -- "$path" "$prefix"); then
    echo "installed files name $path:"; echo "$found"; exit 1
  fi
done
grep -q '"name": "llama"' <<<"$("$prefix/bin/trainhost" plugins list --json)" ||
  { echo "the moved program does not find its plugins"; exit 1; }
# No link in the installed documents is dead.
docs=$prefix/share/doc/trainhost-sdk-dev links=0
while IFS=: read -r file link; do
  target=${link#](}; target=${target%)}; target=${target%%#*}
  case $target in '' | *://*) continue ;; esac
  [ -e "$(dirname "$file")/$target" ] ||
    { echo "dead link in the installed documents: ${file#"$docs"/}: $target"; exit 1; }
  links=$((links + 1))
done < <(grep -roE '\]\([^) ]+\)' --include='*.md' "$docs")
[ "$links" -gt 100 ] || { echo "only $links links were found in $docs"; exit 1; }
echo "$links links are valid"
echo "installed, moved: $(find "$prefix" -type f | wc -l) files"
