# What both scripts need of a Faultline server. To be sourced; $url is where it is. Needs curl and jq.
# shellcheck shell=bash disable=SC2154

say() { printf '%s\n' "$*" >&2; }

# post PATH BODY [SECONDS]: the answer is in $answer, its status in $status; 000 if there was none in that time.
post() {
  local out
  # The key goes through a pipe: a command line can be read by others.
  out=$(curl --silent --max-time "${3:-10}" --header 'Content-Type: application/json' --config <(authorization) \
    --write-out '\n%{http_code}' --data-binary @- "$url$1" <<<"$2") || true
  answer=${out%$'\n'*} status=${out##*$'\n'}
}

authorization() {
  [ -z "${FAULTLINE_API_KEY-}" ] || printf 'header = "Authorization: Bearer %s"\n' "$FAULTLINE_API_KEY"
}

# Whether to ask again: there was no answer, or something that passes was in the way.
is_passing() {
  case $status in 000 | 429 | 5??) true ;; *) [[ $answer == *'"status":"unknown"'* ]] ;; esac
}

# What a problem+json says.
problem() { jq --raw-output '.detail // .' <<<"$answer" 2>/dev/null || printf '%s\n' "$answer"; }
