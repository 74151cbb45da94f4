#!/bin/bash
# Fails on a test that nothing runs: a tests/**/*_test.cc that no target compiles, or a tests/**/*.spec that no ctest
# test names. Asks the configured build, so it does not matter how a CMakeLists.txt spells it.
# And on two suites of one name: ctest, and who reads of a failure, know a suite by its name alone.
# usage: check_tests_registered.sh BUILD_DIR [TREE]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: check_tests_registered.sh BUILD_DIR [TREE]}
root=$(cd "${2:-$here/..}" && pwd)
# shellcheck source=tools/lib.sh
. "$here/lib.sh"

# Sources that are compiled several at a time stand in a file that includes them.
compiled=$(cat "$build/compile_commands.json"; find "$build" -path '*/Unity/unity_*_cxx.cxx' -exec cat {} +)
ctest_files=$(find "$build" -name CTestTestfile.cmake -exec cat {} +)
is_registered() {
  local file=$1 name
  case $file in
    *.cc) grep -qE "(\"file\": |#include )\"$root/${file//./\\.}\"" <<<"$compiled" ;;
    *.spec)
      name=$(basename "$file" .spec)
      grep -qE "(^|[^A-Za-z0-9_])$name(\.spec)?([^A-Za-z0-9_]|\$)" <<<"$ctest_files"
      ;;
  esac
}

problems=0
while IFS= read -r file; do
  if ! is_registered "$file"; then
    echo "$file: no CMakeLists.txt registers this test, so nothing runs it" >&2
    problems=$((problems + 1))
  fi
done < <(project_files "$root" | grep -E '^tests/.*(_test\.cc|\.spec)$' || true)

while IFS= read -r suite; do
  echo "$suite: two programs have a suite of this name" >&2
  problems=$((problems + 1))
done < <(find "$build" -name '*_suites.cmake' -exec sed -nE 's/^add_test\(\[==\[([^]]*)\].*/\1/p' {} + | sort | uniq -d)

if [ "$problems" -gt 0 ]; then
  echo "$problems problem(s) with tests" >&2
  exit 1
fi
