#!/bin/sh
# run_path_test.sh FOLDER: no program or library in FOLDER has an empty element in its run path. The loader takes an
# empty element for the working directory, from which another user could have a library loaded. Exit code 77: skipped.
folder=$1
command -v readelf > /dev/null || { echo "skipped: no readelf (package binutils)"; exit 77; }
[ -d "$folder" ] || { echo "skipped: no folder $folder"; exit 77; }
failed=0 checked=0
for file in $(find "$folder" -type f \( -name '*.so*' -o -path '*/bin/*' \)); do
  header=$(readelf -h "$file" 2> /dev/null) || continue
  checked=$((checked + 1))
  for path in $(readelf -d "$file" | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]/\2:end/p'); do
    case ":${path%end}" in
      *::?*) echo "$file: empty element in the run path '${path%:end}'"; failed=1 ;;
    esac
    case "${path%:end}" in
      *:) echo "$file: empty element at the end of the run path '${path%:end}'"; failed=1 ;;
    esac
  done
done
echo "$checked files checked"
[ "$checked" -gt 0 ] || failed=1
exit $failed
