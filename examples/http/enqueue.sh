#!/bin/bash
# Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.
#
#   enqueue.sh URL QUEUE SECONDS NAME…
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,4s/^# *//p' "$0" >&2; exit 2; }
url=$1 queue=$2 seconds=$3
shift 3
# shellcheck source=examples/http/faultline.sh
. "$(dirname "$0")/faultline.sh"

# With a key a job can be sent again when the answer is lost: it is added once.
jobs=$(jq --null-input --arg queue "$queue" --argjson seconds "$seconds" '
  [$ARGS.positional[] | {queue: $queue, kind: "greet", idempotency_key: "greet-\(.)", payload: {name: ., seconds: $seconds}}]
' --args "$@")
until post /v1/jobs "$jobs" && ! is_passing; do
  say "$(problem); trying again"
  sleep 1
done
[ "${status:0:1}" = 2 ] || { say "$(problem)"; exit 1; }
jq --raw-output '.submissions[] |
  if .status == "conflict" then error("there is another job with this key: \(.job_id)") else .job_id end' <<<"$answer"
