#!/usr/bin/env bash
# prefix_test.sh SOURCE BUILD WORK: tools/install installs to a prefix and removes every file of it again, but no other
# file; without write permission and without an installation it prints one message.
set -euo pipefail
source=$1 build=$2 work=$3
fail() { echo "FAILED: $*"; exit 1; }
rm -rf "$work"; mkdir -p "$work/prefix/bin"; cd "$work"
echo mine >prefix/bin/other
"$source/tools/install" "$build" prefix
prefix/bin/trainhost plugins list --json | grep -q '"name": "llama"' || fail "the program finds no plugins"
"$source/tools/install" --remove prefix
[ "$(find prefix | sort | tr '\n' ' ')" = "prefix prefix/bin prefix/bin/other " ] || { find prefix; fail "files are left"; }
refused() {  # refused TEXT ARGUMENTS...: exit code 1 and one line with that text
  local text=$1 status=0; shift
  "$source/tools/install" "$@" >out 2>&1 || status=$?
  [ $status = 1 ] && [ "$(wc -l <out)" = 1 ] && grep -qF -- "$text" out || { cat out; fail "exit $status: $*"; }
}
refused "has no installation of trainhost" --remove prefix
refused "is not a folder" "$build" prefix/bin/other
if [ "$(id -u)" != 0 ]; then
  mkdir closed && chmod a-w closed
  refused "no permission to write to" "$build" closed/trainhost
fi
for command in install uninstall; do  # without a prefix
  status=0; "$source/tools/dev" $command >out 2>&1 || status=$?
  [ $status = 2 ] && [ "$(cat out)" = "tools/dev: $command needs the prefix, for example: tools/dev $command ~/.local" ] ||
    { cat out; fail "exit $status: tools/dev $command"; }
done
mkdir -p prefix/share/trainhost && echo ../../other >prefix/share/trainhost/installed-files
refused "is damaged" --remove prefix
