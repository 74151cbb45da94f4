#!/bin/bash
# Runs clang-tidy on every source of the compile commands in BUILD_DIR, in parallel. A source is skipped while it,
# the headers of ours that it reaches, its compile command, .clang-tidy and clang-tidy itself are those of its last
# clean run.
# usage: clang_tidy.sh BUILD_DIR [REGEX]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
build=$(cd "${1:?usage: clang_tidy.sh BUILD_DIR [REGEX]}" && pwd)
filter=${2:-.}
# shellcheck source=tools/lib.sh
. "$here/lib.sh"
cd "$root"
cache=$build/tidy-cache
mkdir -p "$cache"
common=$(clang-tidy-19 --version | cat - .clang-tidy | sha256sum)

# "includer included" for every quoted include that names a file of ours; where it lies does not matter for a key.
declare -A includes
while IFS=: read -r file target; do
  for folder in "" src/ include/ tests/ "${build#"$root/"}/sql/generated/"; do
    [ -f "$folder$target" ] && includes[$file]+=" $folder$target"
  done
done < <(cxx_files . | tr '\n' '\0' | xargs -0 grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' |
  sed -E 's/^([^:]+):[^"]*"([^"]*)".*/\1:\2/')

# The files that $1 reaches, itself among them.
reach() {
  local -A seen=()
  local -a todo=("$1")
  local file
  while [ ${#todo[@]} -gt 0 ]; do
    file=${todo[-1]}
    unset 'todo[-1]'
    [ -n "${seen[$file]+x}" ] && continue
    seen[$file]=1
    # shellcheck disable=SC2206 # split on purpose: the tree has no names with spaces
    [ -n "${includes[$file]+x}" ] && todo+=(${includes[$file]})
  done
  printf '%s\n' "${!seen[@]}" | LC_ALL=C sort
}

# The compile command of every source.
declare -A commands
while IFS=$'\t' read -r source command; do
  commands[$source]=$command
done < <(awk -v root="$root/" '
  /^  "command": / { command = $0 }
  /^  "file": / { sub(/^  "file": "/, ""); sub(/",?$/, ""); if (index($0, root) == 1) print substr($0, length(root) + 1) "\t" command }
' "$build/compile_commands.json")

todo=()
while IFS= read -r source; do
  command=${commands[$source]-}
  if [ -z "$command" ]; then
    echo "$source: no CMake target compiles this" >&2
    exit 1
  fi
  key=$({
    printf '%s\n' "$common" "$command"
    reach "$source" | tr '\n' '\0' | xargs -0 sha256sum
  } | sha256sum | cut -d' ' -f1)
  [ -e "$cache/$key" ] || todo+=("$key" "$source")
done < <(cxx_files . | grep '\.cc$' | grep -E -- "$filter")

echo "clang-tidy: $((${#todo[@]} / 2)) source(s) to look at" >&2
[ ${#todo[@]} -gt 0 ] || exit 0

tidy_one() {
  local build=$1 key=$2 source=$3
  if clang-tidy-19 -p "$build" --quiet "$source" 2>"$build/tidy-cache/$key.err"; then
    rm -f "$build/tidy-cache/$key.err"
    touch "$build/tidy-cache/$key"
    echo "  $source" >&2
  else
    grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter' "$build/tidy-cache/$key.err" >&2
    rm -f "$build/tidy-cache/$key.err"
    echo "  $source: FAILED" >&2
    return 1
  fi
}
export -f tidy_one

# Each run's text stays together because clang-tidy writes it at its end.
# shellcheck disable=SC2016 # expanded by the inner bash
printf '%s\0' "${todo[@]}" | xargs -0 -n2 -P"$(nproc)" bash -c 'tidy_one "$0" "$@"' "$build"
