#!/usr/bin/env bash
# docs_test.sh SDK PAGES TRAINHOST WORK: the generated reference pages (target sdk_docs, in PAGES) are
# complete. Every check, every header and every name of the golden file has its page; no link is dead;
# comments of the headers reach the pages; the generator fails when headers and golden file disagree. Without
# python3 only the pages of the checks are tested.
set -euo pipefail
sdk=$1 pages=$2 trainhost=$3 work=$4
fail() { echo "FAILED: $*"; exit 1; }
dead_links() {  # dead_links FOLDER: prints links of its pages that lead to no file
  local file link
  while IFS=: read -r file link; do
    link=${link#](}; link=${link%)}; link=${link%%#*}
    [ -z "$link" ] || [ -e "$(dirname "$file")/$link" ] || echo "$file: $link"
  done < <(grep -roE '\]\([^) ]+\)' --include='*.md' "$1")
}

checks=$("$trainhost" plugins check --list | grep -oE '\b[CET]-[0-9]{3}\b' | sort -u)
[ "$(wc -l <<<"$checks")" -gt 100 ] || fail "plugins check --list names only $(wc -l <<<"$checks") checks"
for id in $checks; do
  grep -q "^# $id: " "$pages/checks/$id.md" || fail "no page for the check $id"
  grep -qF "($id.md)" "$pages/checks/README.md" || fail "the index of checks lacks $id"
done
[ "$(find "$pages/checks" -name '?-*.md' | wc -l)" = "$(wc -l <<<"$checks")" ] ||
  fail "a page of checks belongs to no check"
[ -z "$(dead_links "$pages")" ] || fail "dead links: $(dead_links "$pages")"
mkdir -p "$work"
printf '[a](missing.md) [b](#section)\n' >"$work/page.md"
[ "$(dead_links "$work")" = "$work/page.md: missing.md" ] || fail "the search for dead links finds none"

command -v python3 >/dev/null ||
  { echo "checks: $(wc -l <<<"$checks") pages; skipped: reference of the headers (no python3)"; exit 77; }
for header in "$sdk"/include/trainhost/*.h; do
  name=$(basename "$header" .h)
  [ "$name" = trainhost ] || grep -q "^# $name.h" "$pages/reference/$name.md" || fail "no page for $name.h"
done
names='$1 == "field" { print $5 } $1 == "constant" || $1 == "struct" || $1 == "function" { print $2 }'
for name in $(awk "$names" "$sdk"/abi/v1.*.txt | sort -u); do
  grep -qE "\`$name\`|^##+ .*$name" -r "$pages/reference" || fail "no page describes $name"
done
rm -rf "$work"; mkdir -p "$work"; cp -r "$sdk/abi" "$sdk/include" "$work"
generate() { python3 -B "$sdk/abi/reference.py" "$work/pages" "$work"; }
sed -i 's|^typedef struct th_estimator {|/* A sentence for the test. */\n&|' "$work/include/trainhost/estimator.h"
generate
grep -q "A sentence for the test." "$work/pages/estimator.md" || fail "a comment of a header is not on its page"
sed -i 's/  uint64_t chunks;/  uint64_t chunks, more;/' "$work/include/trainhost/trainer.h"
if generate >/dev/null 2>&1; then fail "a field that is not in the golden file was accepted"; fi
rm -rf "$work"
echo "$(wc -l <<<"$checks") checks and $(find "$pages/reference" -name '*.md' | wc -l) pages of headers are complete"
