#!/usr/bin/env bash
# install.sh SOURCE BUILD PREFIX: installs the build as a package would (DESTDIR, another prefix), then moves
# it to PREFIX, so that the other tests use a location for which it was neither built nor installed. Fails if
# a file contains a path of this machine.
set -euo pipefail
source=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.stage"
DESTDIR=$prefix.stage cmake --install "$build" --prefix /opt/th-original-prefix >/dev/null
mv "$prefix.stage/opt/th-original-prefix" "$prefix"
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
