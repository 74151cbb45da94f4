# A worker for Faultline with psql and jq. To be sourced; run_worker is all of it.
# shellcheck shell=bash
# shellcheck source=examples/sql/shell/faultline.sh
. "$(dirname "${BASH_SOURCE[0]}")/faultline.sh"

# run_worker DATABASE QUEUE HANDLER: works until SIGTERM, one job at a time. The handler reads the job and prints its result,
# both JSON. If it fails, so does the attempt.
run_worker() {
  database=$1 queue=$2 handler=$3 worker=psql-$(uname -n)-$$ draining='' sweep_at=0 tidy_at=0
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  trap 'draining=1' TERM INT  # seen when the job under way has ended
  say "$worker works on $queue"
  until [ "$draining" ]; do
    if ! claim; then
      pause 1
    elif [ "$draining" ]; then
      settle release
    else
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

# The job at hand: $job, its lease ($id, $token and $lease_id), $ttl, and by our own clock $beat_at and $deadline. All times
# are in milliseconds.

# lease_began ASKED_AT: at some time after that, so it is certainly good until the deadline.
lease_began() { beat_at=$(($1 + ttl / 3)) deadline=$(($1 + ttl)); }

# claim: one job; false if there is none.
claim() {
  local asked_at upkeep=''
  asked_at=$(now_ms)
  # What a Faultline server does by itself: brings back the jobs of workers that vanished, and retires old ones.
  if [ "$asked_at" -ge "$sweep_at" ]; then sweep_at=$((asked_at + 1000)) upkeep='SELECT faultline.sweep() \g /dev/null'; fi
  if [ "$asked_at" -ge "$tidy_at" ]; then tidy_at=$((asked_at + 60000)) upkeep+=$'\nSELECT faultline.tidy() \\g /dev/null'; fi
  if ! ask "$upkeep
            SELECT id, token, lease_id, (extract(epoch FROM least(lease_ttl, run_max)) * 1000)::bigint, row_to_json(c)
              FROM faultline.claim(:'queue', :'worker') AS c" queue="$queue" worker="$worker"; then
    say "$problem"
    is_passing || exit 1
    return 1
  fi
  [ -n "$answer" ] || return 1
  IFS=$'\t' read -r -d '' id token lease_id ttl job <<<"$answer"
  lease_began "$asked_at"
}

# call VERB COLUMNS [ARGUMENT [NAME=VALUE…]]: a verb of the worker's, with the lease.
call() {
  ask "SELECT $2 FROM faultline.$1(:'id', :'token', :'lease_id'${3:+, $3})" \
    id="$id" token="$token" lease_id="$lease_id" "${@:4}"
}

# Renews the lease. $verdict is renewed, cancel_requested, lost, or no_answer.
beat() {
  local asked_at patience
  asked_at=$(now_ms)
  patience=$(in_seconds $((ttl / 3)))  # the next look at the deadline waits for this
  if call heartbeat "CASE WHEN status = 'stale' THEN 'lost' WHEN cancel_requested THEN 'cancel_requested' ELSE 'renewed' END"; then
    verdict=$answer
  else
    verdict=no_answer
  fi
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

# settle VERB [ARGUMENT [NAME=VALUE…]]: until it is answered, or the lease is certainly over. Sent twice it counts once:
# `repeated` says that the first one was committed, and only its answer was lost.
settle() {
  local end
  end=$(($(now_ms) + ttl))
  until call "$1" "CASE WHEN status = 'stale' THEN concat(reason, ', the current token is ', current_token) END" "${@:2}"; do
    say "not settled: $problem"
    is_passing && [ "$(now_ms)" -lt "$end" ] || return
    pause "$(in_seconds $((ttl / 10)))"
  done
  [ -z "$answer" ] || say "refused: $answer"
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
    settle complete ":'result'" result="$(<"$scratch/result")"
  elif [ "$(cat "$scratch/stopped" 2>/dev/null)" = lost ]; then
    say "the lease is lost: the job goes on without us"
  elif [ -e "$scratch/stopped" ]; then
    settle acknowledge_cancel "'stopped as asked'"
  else
    settle fail "'the handler failed'"
  fi
}
