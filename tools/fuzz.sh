#!/bin/bash
# Runs fuzz targets that were built in BUILD_DIR, each over its corpus and then SECONDS beyond it. Says nothing about one
# that holds. SEED 0: begins elsewhere every time, and keeps what it finds interesting in BUILD_DIR/found for the next.
# usage: fuzz.sh BUILD_DIR SECONDS SEED JOBS TARGET…
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
build=$(cd "${1:?usage: fuzz.sh BUILD_DIR SECONDS SEED JOBS TARGET…}" && pwd)
seconds=$2 seed=$3 jobs=$4
shift 4
mkdir -p "$build/found" "$build/failed"
# Names and lines in reports, by a program that comes with the compiler.
ASAN_SYMBOLIZER_PATH=$(command -v addr2line)
export ASAN_SYMBOLIZER_PATH

fuzz_one() {
  local root=$1 build=$2 seconds=$3 seed=$4 target=$5
  local corpus=$root/fuzz/corpus/$target found=$build/found/$target log=$build/failed/$target.log
  [ "$seed" = 0 ] || found=$(mktemp -d)
  mkdir -p "$found"
  local code=0
  # Generous limits: a machine may be busy, and a hang is still seen.
  UBSAN_OPTIONS=print_stacktrace=1 "$build/fuzz/$target" -seed="$seed" -max_total_time="$seconds" -timeout=60 \
    -rss_limit_mb=2048 -artifact_prefix="$build/failed/$target-" "$found" "$corpus" >"$log" 2>&1 || code=$?
  [ "$seed" = 0 ] || rm -rf "$found"
  if [ $code = 0 ]; then
    rm -f "$log"
    return
  fi
  local input
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  # One text, so that those of others do not come between its lines.
  echo "$(grep -aE -A 20 'broken promise|ERROR: |runtime error: |terminate called' "$log" | head -n 40 || true)
fuzz target $target FAILED. All it said: ${log#"$root/"}
The input: ${input#"$root/"}
To see it again: ${build#"$root/"}/fuzz/$target ${input#"$root/"}" >&2
  return 1
}
export -f fuzz_one

# shellcheck disable=SC2016 # expanded by the inner bash
printf '%s\0' "$@" | xargs -0 -n1 -P"$jobs" bash -c 'fuzz_one "$@"' fuzz "$root" "$build" "$seconds" "$seed"
