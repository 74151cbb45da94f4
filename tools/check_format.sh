#!/bin/bash
# Fails on a C++ file that `./dev format` would change.
# usage: check_format.sh [TREE]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/..}
# shellcheck source=tools/lib.sh
. "$here/lib.sh"

if ! cxx_files "$root" | (cd "$root" && tr '\n' '\0' | xargs -0 -r -n 64 -P "$(nproc)" clang-format-19 --dry-run -Werror --); then
  echo "run ./dev format" >&2
  exit 1
fi
