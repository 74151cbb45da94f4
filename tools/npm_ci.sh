#!/bin/bash
# Installs what the package-lock.json of SOURCE pins into TARGET/node_modules, for programs that run and never for a build.
# Does nothing when that has been done. Several at the same time wait for one another.
# usage: npm_ci.sh SOURCE TARGET
set -euo pipefail
[ $# = 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
repo=$(cd "$(dirname "$0")/.." && pwd)
source=$(cd "$1" && pwd)
mkdir -p "$2"
cd "$2"

manifest=(package.json package-lock.json .npmrc)
is_installed() {
  local file
  [ -e installed ] || return 1
  for file in "${manifest[@]}"; do cmp --silent "$source/$file" "$file" || return 1; done
}

exec 9>lock
flock 9
! is_installed || exit 0
command -v npm >/dev/null || { echo "npm is not installed: ./dev setup, or Node of your choice with its npm" >&2; exit 1; }
rm -f installed
for file in "${manifest[@]}"; do cp "$source/$file" .; done
# A registry that does not answer is given up soon.
if ! npm ci --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=20000 </dev/null 9>&- >npm.log 2>&1; then
  cat npm.log >&2
  echo "npm could not install what ${source#"$repo"/}/package-lock.json names. Does it reach its registry (npm ping)?" >&2
  exit 1
fi
touch installed
