#!/bin/bash
# Greets people, one at a time, until SIGTERM.
#
#   worker.sh DATABASE QUEUE
set -uo pipefail
[ $# = 2 ] || { sed -n '2,4s/^# *//p' "$0" >&2; exit 2; }
# shellcheck source=examples/sql/shell/faultline_worker.sh
. "$(dirname "$0")/faultline_worker.sh"

greet() {
  local job
  job=$(cat)
  pause "$(jq '.payload.seconds // 0' <<<"$job")"
  jq '"hello, \(.payload.name), from psql"' <<<"$job"
}

run_worker "$1" "$2" greet
