#!/usr/bin/env bash
# install.sh SOURCE BUILD PREFIX: installs the build as a package would (DESTDIR, another prefix), then moves it to PREFIX: what
# the tests beside this one use was neither built nor installed where it lies. Fails where a file names a path of this machine.
set -euo pipefail
source=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.stage"
DESTDIR=$prefix.stage cmake --install "$build" --prefix /opt/th-first-place >/dev/null
mv "$prefix.stage/opt/th-first-place" "$prefix"
left=$(find "$prefix.stage" -type f | head -n 3)
[ -z "$left" ] || { echo "installed outside of the prefix: $left"; exit 1; }
for path in "$source" "$build" /opt/th-first-place; do
  if found=$(grep -rlF -- "$path" "$prefix"); then
    echo "installed files name $path:"; echo "$found"; exit 1
  fi
done
grep -q '"name": "llama"' <<<"$("$prefix/bin/trainhost" plugins list --json)" || { echo "the moved program does not find its plugins"; exit 1; }
# The documents have the tree's shape, and every link in them leads somewhere.
docs=$prefix/share/doc/trainhost-sdk-dev links=0
while IFS=: read -r file link; do
  target=${link#](}; target=${target%)}; target=${target%%#*}
  case $target in '' | *://*) continue ;; esac
  [ -e "$(dirname "$file")/$target" ] || { echo "a link that leads nowhere in the installed documents: ${file#"$docs"/}: $target"; exit 1; }
  links=$((links + 1))
done < <(grep -roE '\]\([^) ]+\)' --include='*.md' "$docs")
[ "$links" -gt 100 ] || { echo "only $links links were found in $docs"; exit 1; }
echo "$links links hold"
echo "installed, moved: $(find "$prefix" -type f | wc -l) files"
