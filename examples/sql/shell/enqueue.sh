#!/bin/bash
# Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.
#
#   enqueue.sh DATABASE QUEUE SECONDS NAME…
set -uo pipefail
[ $# -ge 4 ] || { sed -n '2,4s/^# *//p' "$0" >&2; exit 2; }
database=$1 queue=$2 seconds=$3
shift 3
# shellcheck source=examples/sql/shell/faultline.sh
. "$(dirname "$0")/faultline.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# With a key a job can be sent again when the answer is lost: it is added once.
jobs=$(jq --null-input --arg queue "$queue" --argjson seconds "$seconds" '
  [$ARGS.positional[] | {queue: $queue, kind: "greet", idempotency_key: "greet-\(.)", payload: {name: ., seconds: $seconds}}]
' --args "$@")
until ask "SELECT faultline.enqueue_many(:'jobs')" jobs="$jobs"; do
  say "$problem"
  is_passing || exit 1
  sleep 1
done
printf '%s\n' "$answer"
