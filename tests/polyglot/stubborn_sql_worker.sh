#!/bin/bash
# A worker whose handler ends only when a file is there. FILE.begun says that it runs.
#
#   stubborn_sql_worker.sh DATABASE QUEUE FILE
set -uo pipefail
# shellcheck source=examples/sql/shell/faultline_worker.sh
. "$(dirname "$0")/../../examples/sql/shell/faultline_worker.sh"

file=$3
greet() {
  : >"$file.begun"
  until [ -e "$file" ]; do pause 0.05; done
  echo '"late"'
}

run_worker "$1" "$2" greet
