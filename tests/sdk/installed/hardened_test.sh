#!/bin/sh
# hardened_test.sh FOLDER: every program and library in FOLDER is position-independent, checks its stack frames, has no
# executable stack, and makes its relocations read-only after loading (SECURITY.md). Exit code 77: skipped.
folder=$1
command -v readelf > /dev/null || { echo "skipped: no readelf (package binutils)"; exit 77; }
failed=0 checked=0
for file in $(find "$folder" -type f \( -name '*.so' -o -path '*/bin/*' \)); do
  text=$(readelf -hldW --dyn-syms "$file" 2> /dev/null) || continue
  checked=$((checked + 1))
  for part in 'Type: *DYN' GNU_RELRO 'FLAGS.*NOW' __stack_chk_fail 'GNU_STACK .* RW '; do
    echo "$text" | grep -q -- "$part" || { echo "$file: readelf prints no line with '$part'"; failed=1; }
  done
done
echo "$checked files checked"
[ "$checked" -gt 5 ] || failed=1
exit $failed
