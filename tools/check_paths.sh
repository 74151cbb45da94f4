#!/bin/bash
# Fails on a file that names somebody's own machine: an absolute path of a home or a checkout, or the host of a
# package or image registry.
# usage: check_paths.sh [TREE]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/..}
# shellcheck source=tools/lib.sh
. "$here/lib.sh"

# The brackets keep this file from finding itself. `somebody` is nobody's home: the name to use in examples.
machine_path='(^|[^A-Za-z0-9_.~-])/(hom[e]|roo[t]|wor[k]|User[s])/[A-Za-z0-9_.-]'
registry_host='(registr[y]|artifactor[y])[.-][a-z0-9.-]+\.(com|net|org|io|dev|internal|local|corp)\b|\.pk[g]\.dev|(gcr|ghcr|quay|docker)\.i[o]\b|npmj[s]\.|py[p]i\.'

found=$(project_files "$root" | (cd "$root" && tr '\n' '\0' | xargs -0 grep -nIE -e "$machine_path" -e "$registry_host" --) |
  grep -vE '/hom[e]/somebody\b' || true)
if [ -n "$found" ]; then
  echo "$found" >&2
  echo "these lines name a path or a registry of one machine: use a relative path, a variable or a placeholder" >&2
  exit 1
fi
