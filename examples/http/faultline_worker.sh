# A worker for Faultline over HTTP, with curl and jq. To be sourced; run_worker is all of it.
# shellcheck shell=bash
# shellcheck source=examples/http/faultline.sh
. "$(dirname "${BASH_SOURCE[0]}")/faultline.sh"

# run_worker URL QUEUE HANDLER: works until SIGTERM, one job at a time. The handler reads the job and prints its result, both
# JSON. If it fails, so does the attempt.
run_worker() {
  url=$1 queue=$2 handler=$3 worker=curl-$(uname -n)-$$ draining=''
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  trap 'draining=1' TERM INT  # seen when the poll or the job under way has ended
  say "$worker works on $queue"
  until [ "$draining" ]; do
    if ! claim; then
      continue
    elif [ "$draining" ]; then
      settle '{"outcome": "released"}'
    elif [ "$(now_ms)" -lt "$deadline" ]; then
      work
    fi
  done
  say "$worker has ended"
}

# pause SECONDS: `sleep` without a process that would be left behind.
exec {silence}<> <(:)
pause() { read -r -t "$1" -u "$silence" || true; }

# Milliseconds of a clock that nobody sets.
now_ms() {
  local up
  read -r up _ </proc/uptime
  echo $((10#${up/./} * 10))
}
in_seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# The job at hand: $job, $lease, $ttl, and by our own clock $beat_at and $deadline. All times are in milliseconds.

# lease_began ASKED_AT: at some time after that, so it is certainly good until the deadline.
lease_began() { beat_at=$(($1 + ttl / 3)) deadline=$(($1 + ttl)); }

# Renews the lease. $verdict is renewed, cancel_requested, lost, or something else if there was no answer.
beat() {
  local asked_at
  asked_at=$(now_ms)
  post /v1/heartbeat "{\"leases\": [$lease]}" "$(in_seconds $((ttl / 3)))"
  verdict=$(jq --raw-output '.beats[0].status' <<<"$answer" 2>/dev/null)
  if [ "$verdict" = renewed ]; then lease_began "$asked_at"; else beat_at=$((asked_at + ttl / 10)); fi
}

# keep_lease HANDLER: renews the lease after a third of its TTL. Ends the handler (a process id) when the lease is lost or not
# certainly good any more, when the job is cancelled, and when this script has died: nobody would settle then.
keep_lease() {
  local now verdict=''
  while [ "$verdict" != lost ] && [ "$verdict" != cancel_requested ] && kill -0 $$ 2>/dev/null; do
    [ ! -e "$scratch/over" ] || return
    now=$(now_ms)
    if [ "$now" -ge "$deadline" ]; then
      verdict=lost
    elif [ "$now" -ge "$beat_at" ]; then
      trap '' TERM  # one that is on its way when the handler ends arrives before the outcome does
      beat
      trap - TERM
    else
      pause "$(in_seconds $((beat_at - now)))"
    fi
  done
  echo "$verdict" >"$scratch/stopped"
  kill "$1" 2>/dev/null
}

# settle OUTCOME: until it is answered, or the lease is certainly over.
settle() {
  local result end
  end=$(($(now_ms) + ttl))
  result=$(jq --compact-output --argjson lease "$lease" '. + {lease: $lease}' <<<"$1")
  # Again: it may have been committed, and only the answer is missing.
  while post /v1/settle "{\"results\": [$result]}"; is_passing && [ "$(now_ms)" -lt "$end" ]; do
    pause "$(in_seconds $((ttl / 10)))"
  done
  [ "$status" = 200 ] || say "not settled: $(problem)"
}

# Runs the handler, keeps the lease meanwhile, and settles.
work() {
  local running keeper
  rm -f "$scratch"/*
  { "$handler" <<<"$job" >"$scratch/result" && touch "$scratch/succeeded"; } &
  running=$!
  keep_lease "$running" &
  keeper=$!
  while kill -0 "$running" 2>/dev/null; do wait "$running"; done  # a signal ends a wait, but not what has begun
  touch "$scratch/over"
  kill "$keeper" 2>/dev/null
  while kill -0 "$keeper" 2>/dev/null; do wait "$keeper"; done
  if [ -e "$scratch/succeeded" ]; then
    settle "$(jq --compact-output '{outcome: "succeeded", result: .}' "$scratch/result")"
  elif [ "$(cat "$scratch/stopped" 2>/dev/null)" = lost ]; then
    say "the lease is lost: the job goes on without us"
  elif [ -e "$scratch/stopped" ]; then
    settle '{"outcome": "cancelled", "error": "stopped as asked"}'
  else
    settle '{"outcome": "failed", "error": "the handler failed"}'
  fi
}

# claim: one job, as soon as there is one; false if there is none.
claim() {
  local asked_at
  asked_at=$(now_ms)
  post /v1/claim "{\"queue\": \"$queue\", \"worker\": \"$worker\", \"limit\": 1, \"wait_ms\": 2000}"
  if [ "$status" != 200 ]; then
    say "$(problem)"
    is_passing || exit 1
    pause 1
    return 1
  fi
  job=$(jq --compact-output '.jobs[0] // empty' <<<"$answer")
  [ -n "$job" ] || return 1
  lease=$(jq --compact-output .lease <<<"$job")
  ttl=$(jq .lease_ttl_ms <<<"$job")
  lease_began "$asked_at"
  # The poll was long: make sure of the lease before anything is done.
  [ "$(now_ms)" -lt "$beat_at" ] || beat
}
