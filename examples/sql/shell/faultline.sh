# What both scripts need of a database with Faultline in it. To be sourced; $database is its address. Needs psql (15 or later)
# and jq. A password belongs into ~/.pgpass: a command line can be read by others.
# shellcheck shell=bash disable=SC2034,SC2154
export PGCONNECT_TIMEOUT=5 PGOPTIONS='-c statement_timeout=5s'

say() { printf '%s\n' "$*" >&2; }

# ask SQL NAME=VALUE…: what it answers is in $answer, with tabs between columns, what went wrong in $problem. In the SQL :'NAME' stands for a value.
# Values go through the environment, which is nobody else's to read. Without an answer in 10 s, or in $patience, it has failed.
ask() {
  local sql=$1 script='' name pair
  shift
  for pair; do
    name=${pair%%=*}
    script+="\\getenv $name FAULTLINE_$name"$'\n'
  done
  answer=$(env "${@/#/FAULTLINE_}" timeout "${patience:-10}" psql "$database" --no-psqlrc --quiet --tuples-only --no-align --field-separator=$'\t' \
    --set ON_ERROR_STOP=1 --set VERBOSITY=verbose <<<"$script$sql" 2>"$scratch/problem")
  local code=$?
  problem=$(<"$scratch/problem")
  return $code
}

# Whether to ask again: there is no connection, or the server is busy, in recovery or told to end.
is_passing() { [[ ! $problem =~ (ERROR|FATAL):\ +[0-9A-Z]{5}: || $problem =~ (ERROR|FATAL):\ +(08|40|53|55|57) ]]; }
