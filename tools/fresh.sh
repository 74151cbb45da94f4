#!/bin/bash
# Does what a new user does, on a machine as bare as theirs: a minimal Debian 12 made for the occasion, with a clone of
# HEAD in it. What is missing from tools/packages.txt is missing there.
# With --package, the packages that the clone makes are then tried on a second one, which has nothing else of Faultline.
# usage: fresh.sh [--quick | --package | [--user] [COMMAND…]]   (as root; `./dev help` says what they mean)
#
# All of it happens in a mount and a process namespace of its own, which the kernel takes down with its first process: this
# machine sees none of the mounts, and nothing that was started in there outlives this script, however it ends.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
fresh=$repo/build/fresh
machine=$fresh/root      # its file system
bare=$fresh/bare.tar     # what it begins as; nothing is installed in it
results=$fresh/results   # a line per command: as whom, what, seconds, exit status, packages in all, packages asked for
release=bookworm
# Where the clone is in there, for whoever works in it: ccache knows some sources only by where they are. It is a home that is
# closed to others, as homes are.
clone=/home/somebody/faultline
place=$clone             # where commands are given

# How long ./dev run may take until it is up (it builds first), until its race was seen, and until it is down.
up_max=2400 race_max=120 down_max=60

say() { printf '[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2; }
die() {
  printf '%s\n' "$@" >&2
  exit 1
}

# --- On this machine ---------------------------------------------------------------------------------------------------

# Debian's own sources as this machine is set up to reach them. None on another system: then mmdebstrap knows where to look.
debian_sources() {
  # shellcheck disable=SC2016 # apt's variables
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 2>/dev/null |
    awk -v release=$release '$3 == "main" && ($2 == release || $2 == release "-updates" || $2 == release "-security") && !seen[$0]++ {
      print "deb", $1, $2, $3 }'
}

# How this machine's apt reaches its sources: proxies, retries and the like, but no hooks.
acquire_settings() { apt-config dump --format '%f "%v";%n' Acquire | sed '/ "";$/d'; }

make_bare() {
  [ -z "$(find "$bare" -mtime -1 2>/dev/null)" ] || return 0
  say "making a bare Debian 12"
  local sources
  mapfile -t sources < <(debian_sources)
  acquire_settings >"$fresh/acquire.conf"
  mmdebstrap --quiet --variant=minbase --format=tar --aptopt="$fresh/acquire.conf" $release "$bare.new" "${sources[@]}" ||
    die "" "mmdebstrap could not make a bare Debian 12; above is what it said."
  mv "$bare.new" "$bare"
}

remove_machines() {
  # Nothing is ever mounted there in this namespace. If something is all the same, what is behind it is not ours to delete.
  if grep -qF " ${machine// /\\040}" /proc/self/mountinfo; then
    echo "Not removing $machine: something is mounted there (see /proc/self/mountinfo)." >&2
    return 1
  fi
  rm -rf --one-file-system "$machine" "$machine-2"
}

# What the machine needs to reach the same package archives as this one.
carry_settings() {
  local file bundle=/etc/ssl/certs/ca-certificates.crt
  cp /etc/resolv.conf /etc/hosts "$machine/etc/"
  acquire_settings >"$machine/etc/apt/apt.conf.d/80fresh"
  for file in auth.conf auth.conf.d; do
    [ ! -e "/etc/apt/$file" ] || cp -a "/etc/apt/$file" "$machine/etc/apt/"
  done
  if [ -e $bundle ]; then
    cp -L $bundle "$machine/etc/fresh.crt"
    echo 'Acquire::https::CAInfo "/etc/fresh.crt";' >>"$machine/etc/apt/apt.conf.d/80fresh"
  fi
  for file in /etc/npmrc /usr/etc/npmrc; do
    [ ! -e $file ] || cp $file "$machine/etc/npmrc"
  done
  # Nothing in there has to survive a crash.
  echo force-unsafe-io >"$machine/etc/dpkg/dpkg.cfg.d/fresh"
}

# The commands of the README, one per line as they stand there.
readme_commands() {
  local commands
  commands=$(awk '/^## / { inside = ($0 == "## Two commands") } inside && /^\.\/dev / { print }' "$repo/README.md")
  for command in run test; do
    grep -qE "^\./dev $command( |\$)" <<<"$commands" || die "README.md: \"Two commands\" does not have ./dev $command any more."
  done
  printf '%s\n' "$commands"
}

# The commands of docs/getting-started.md as one script: its plain blocks in their order, but for the one with a database of
# yours, and with the program that it speaks of.
guide_script() {
  awk '
    /^<!-- quote / { quoted = 1; next }
    /^```/ && !inside { inside = quoted ? "quote" : $0 == "```" ? "shell" : $0 == "```cmake" ? "cmake" : "other"; block = ""; next }
    /^```/ {
      if (inside == "cmake") printf "mkdir ~/hello && cp examples/hello.cc examples/example.h ~/hello && cd ~/hello\ncat >CMakeLists.txt <<\\END\n%sEND\n", block
      if (inside == "shell" && block !~ /postgresql:\/\/\/app/) printf "%s", block
      inside = quoted = ""
      next
    }
    inside { block = block $0 "\n" }' "$repo/docs/getting-started.md"
  # shellcheck disable=SC2016,SC2088 # expanded there
  printf '%s\n' '[ "$(build/hello)" = "$(cat $OLDPWD/examples/output/hello.txt)" ]' '~/.local/bin/faultline pg stop'
}

# A table of the results, and the names of the packages that each command asked for.
report() {
  [ -e "$results" ] || return 0
  local as command seconds status all asked width
  width=$(cut -f 2 "$results" | sed 's/  #.*//' | wc -L)
  printf '\n%-9s %-*s %6s  %-11s %s\n' as "$width" command time exit packages
  while IFS=$'\t' read -r as command seconds status all asked; do
    [ "$seconds" = - ] || seconds=$((seconds / 60)):$(printf %02d $((seconds % 60)))
    printf '%-9s %-*s %6s  %-11s %s\n' "$as" "$width" "${command%%  #*}" "$seconds" "$status" "$all"
  done <"$results"
  while IFS=$'\t' read -r as command seconds status all asked; do
    [ -z "$asked" ] || printf '\n%s installed: %s\n' "${command%%  #*}" "$asked" | fold -s -w 118
  done <"$results"
}

clean_up() {
  local status=$?
  trap '' INT TERM
  if [ -n "${namespace-}" ]; then
    kill -KILL "$namespace" 2>/dev/null || true  # and with it everything in there
    wait "$namespace" 2>/dev/null || true
  fi
  report >&2
  remove_machines || status=1
  # After `sudo ./dev fresh`, ./dev clean works without.
  [ -z "${SUDO_UID-}" ] || chown -R "$SUDO_UID:${SUDO_GID-}" "$fresh"
  exit "$status"
}

# step AS COMMAND: to be done, in this order.
steps=()
step() { steps+=("$1"$'\t'"$2"); }

# What the packages are for, from their making to their removal.
package_steps() {
  step root './dev package'
  step - 'the packages, on a second machine'
  step root 'apt update && apt install ./faultline_*.deb man-db'
  step somebody 'faultline version'
  step somebody 'man faultline'
  step somebody 'faultline up'
  step somebody 'faultline drill lease-race --runs 100'
  step root 'apt install ./libfaultline*.deb g++ cmake pkg-config'
  step somebody 'the examples, by find_package'
  step somebody 'hello, by pkg-config'
  step root "apt remove faultline 'libfaultline*'"
  step root "apt purge faultline 'libfaultline*'"
}

main() {
  local quick='' package='' as=root command
  while [ $# -gt 0 ]; do
    case $1 in
      --quick) quick=1 ;;
      --package) package=1 ;;
      --user) as=somebody ;;
      -*) die "fresh: unknown option $1" ;;
      *) break ;;
    esac
    shift
  done
  [ "$(id -u)" = 0 ] || die "./dev fresh makes a Debian of its own and changes its root there, which only root can: sudo ./dev fresh"
  [ -z "$quick$package" ] || [ $# = 0 ] || die "fresh: --quick and --package take no commands"

  if [ -n "$quick" ]; then
    # As root on the bare machine, then as somebody with sudo, who also has the rest installed.
    step root "$(readme_commands | grep -m 1 '^\./dev run')"
    step somebody './dev setup'
    step somebody 'cmake --preset EACH'
    step somebody './dev run'
  elif [ -n "$package" ]; then
    package_steps
  elif [ $# -gt 0 ]; then
    for command; do
      [ "$command" = docs/getting-started.md ] || command="./dev $command"
      step "$as" "$command"
    done
  else
    while IFS= read -r command; do step "$as" "$command"; done < <(readme_commands)
    step "$as" 'docs/getting-started.md'
  fi

  mkdir -p "$fresh"
  exec 9>"$fresh/lock"
  flock -n 9 || die "Another ./dev fresh is under way in this clone."
  rm -rf "$results" "$fresh/logs"
  mkdir "$fresh/logs"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  remove_machines
  make_bare
  [ -z "$(git -C "$repo" status --porcelain)" ] || say "what is not committed is not tried: it is a clone of HEAD"

  # The first process in there is this script again. It dies with unshare, and unshare with us.
  setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
    "$0" --inside "${steps[@]}" 9>&- </dev/null &
  namespace=$!
  local status=0
  wait "$namespace" || status=$?
  namespace=''
  return $status
}

# --- In the namespaces -------------------------------------------------------------------------------------------------

# as_user USER COMMAND: in the clone, with what a login gives, with what reaches the same registries, and in the language of
# this machine (which is in the keys of ccache). No signal is ignored, whatever we were started by.
as_user() {
  local user=$1 home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin carried=() name
  if [ "$user" != root ]; then
    home=/home/somebody path=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
    # The cache belongs to root.
    carried+=(CCACHE_READONLY=1 CCACHE_TEMPDIR="$home/.cache/ccache-tmp")
  fi
  for name in $(compgen -e | grep -iE '^((https?|ftp|all|no)_proxy|npm_config_.*|lang|lc_.*|CI|FAULTLINE_JOBS)$' || true); do
    carried+=("$name=${!name}")
  done
  [ ! -e "$machine/etc/fresh.crt" ] || carried+=(NODE_EXTRA_CA_CERTS=/etc/fresh.crt npm_config_cafile=/etc/fresh.crt)
  exec chroot "$machine" /usr/bin/env --default-signal -i HOME=$home USER="$user" LOGNAME="$user" PATH=$path \
    CCACHE_DIR=/var/cache/ccache CCACHE_STATSLOG=/tmp/ccache-"$user".log "${carried[@]}" \
    setpriv --reuid="$user" --regid="$user" --init-groups bash -c "cd $place && $2"
}

# clone_for USER HOME
clone_for() {
  [ ! -e "$machine$clone" ] || mv "$machine$clone" "$machine$clone-before"
  git -c advice.detachedHead=false clone --quiet --no-hardlinks "$repo" "$machine$clone"
  [ ! -e ~/.npmrc ] || cp ~/.npmrc "$machine$2/"
  chroot "$machine" chown -R "$1:$1" "$2" "$clone"
}

# Somebody becomes a user who may do as root does, without a password, and has the clone.
let_somebody_in() {
  [ ! -e "$machine/etc/sudoers.d/somebody" ] || return 0
  (as_user root 'cd / && apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends sudo') \
    >"$fresh/logs/sudo.log" 2>&1 || { cat "$fresh/logs/sudo.log" >&2; die "" "sudo could not be installed."; }
  echo 'somebody ALL=(ALL) NOPASSWD: ALL' >"$machine/etc/sudoers.d/somebody"
  clone_for somebody /home/somebody
}

# shellcheck disable=SC2016 # dpkg's variable
packages() { chroot "$machine" dpkg-query -W -f='${Package}\n' | sort -u; }
asked_for() { chroot "$machine" apt-mark showmanual | sort -u; }

# What runs in here besides this script. What is about to end gets a moment for it.
left_running() {
  local process left
  for _ in 1 2 3 4 5 6; do
    left=''
    for process in /proc/[0-9]*; do
      [ "$process" = /proc/1 ] || [ "$process" = "/proc/$BASHPID" ] ||
        left+=$(tr -s '\0 ' ' ' 2>/dev/null <"$process/cmdline" || true)
    done
    [ -n "$left" ] || break
    sleep 0.5
  done
  printf '%s' "$left"
}

# wait_for LOG PATTERN SECONDS PROCESS: until the log has it. Fails when the time is over or the process has ended.
wait_for() {
  local until=$((SECONDS + $3))
  until grep -qE "$2" "$1"; do
    if ! kill -0 "$4" 2>/dev/null || [ $SECONDS -ge $until ]; then
      grep -qE "$2" "$1" && return
      echo "never saw: $2" >>"$1"
      return 1
    fi
    sleep 0.5
  done
}

# try_run USER COMMAND LOG: until it is up and its forced race was seen; then looks at the race as it says how to, and Ctrl-C.
try_run() {
  local user=$1 log=$3 process story status=0
  (as_user "$user" "$2") >>"$log" 2>&1 &
  process=$!
  if wait_for "$log" '^Faultline is up\.' $up_max $process && wait_for "$log" 'stale_write_blocked' $race_max $process &&
    wait_for "$log" 'the whole story: ' $race_max $process; then
    story=$(sed -n 's/.*the whole story: //p' "$log" | head -n 1)
    (as_user "$user" "$story") >"$log.story" 2>&1 || status=1
    grep -q 'token_mismatch' "$log.story" || status=1
    [ $status = 0 ] || { echo "$story does not tell of the refused write:" && cat "$log.story"; } >>"$log"
  else
    status=1
  fi
  kill -INT -- -$process 2>/dev/null || true
  wait_for "$log" '^Faultline is down' $down_max $process || status=1
  kill -KILL -- -$process 2>/dev/null || true
  wait $process || status=$?
  return $status
}

# try_script USER SCRIPT LOG: commands that must all succeed.
try_script() {
  printf '%s\n' "$2" >"$machine/tmp/script.sh"
  (as_user "$1" 'bash -eux -o pipefail /tmp/script.sh') >"$3" 2>&1 &
  wait $!
}

# The examples as they are installed, built and run as their CMakeLists.txt says, with a private server. Each says what it should,
# also the one that works until SIGTERM; one that hangs would end by it with another status.
examples_script() {
  cat <<'END'
cp -r /usr/share/doc/libfaultline-dev/examples ~ && cd ~/examples
cmake -S . -B build && cmake --build build
faultline pg start && faultline migrate
for output in output/*.txt; do
  timeout --preserve-status 20 build/example_"$(basename "$output" .txt)" "$(faultline pg url)" | diff "$output" -
done
faultline pg stop
END
}

# As the guide builds without CMake. And the other library is found as well.
hello_script() {
  cat <<'END'
mkdir ~/hello && cd ~/hello && cp /usr/share/doc/libfaultline-dev/examples/{hello.cc,example.h} .
g++ -std=c++23 hello.cc $(pkg-config --cflags --libs faultline) -o hello
faultline pg start && faultline migrate
[ "$(./hello "$(faultline pg url)")" = 'hello, world' ]
faultline pg stop
cat >remote.cc <<'CC'
#include <faultline/worker.h>
int main() { const auto worker = faultline::Worker::connect("faultline://127.0.0.1:1"); }
CC
g++ -std=c++23 remote.cc $(pkg-config --cflags --libs faultline-remote) -o remote && ./remote
END
}

# check_removed: the program has gone, and what its user wrote has not: settings, and jobs.
check_removed() {
  [ ! -e "$machine/usr/bin/faultline" ] && [ -e "$machine/etc/faultline/faultline.toml" ] &&
    [ -d "$machine/home/somebody/.local/state/faultline" ]
}

# check_purged: nothing is left but what is in somebody's home, and where we put the packages.
check_purged() {
  local left
  left=$(cd "$machine" && find . -xdev \( -path ./home -o -path ".$place" \) -prune -o -name '*faultline*' -print)
  left+=$(chroot "$machine" ldconfig -p | grep faultline || true)
  [ -z "$left" ] || { printf 'left behind:\n%s\n' "$left" && return 1; }
}

# try_presets USER LOG: configures every preset there is.
try_presets() {
  local preset presets
  presets=$( (as_user "$1" 'cmake --list-presets') | sed -n 's/^  "\([^"]*\)".*/\1/p') && [ -n "$presets" ] || return 1
  for preset in $presets; do
    (as_user "$1" "cmake --preset $preset") >>"$2" 2>&1 || { echo "cmake --preset $preset failed" >>"$2"; return 1; }
  done
}

# try USER COMMAND NUMBER
try() {
  local user=$1 command=$2 log=$fresh/logs/$3.log status=0 begun=$SECONDS left
  packages >"$fresh/packages" && asked_for >"$fresh/asked"
  say "as $user: ${command%%  #*}   (${log#"$repo/"})"
  printf '%s\t%s\t-\tinterrupted\t\t\n' "$user" "$command" >>"$results"  # until it has ended
  : >"$log"
  case $command in
    './dev run' | './dev run '*) try_run "$user" "$command" "$log" || status=$? ;;
    docs/getting-started.md) try_script "$user" "$(guide_script)" "$log" || status=$? ;;
    'faultline up') try_run "$user" "$command" "$log" || status=$? ;;
    'the examples, by find_package') try_script "$user" "$(examples_script)" "$log" || status=$? ;;
    'hello, by pkg-config') try_script "$user" "$(hello_script)" "$log" || status=$? ;;
    'apt remove '*) { (as_user "$user" "$command") && check_removed; } >"$log" 2>&1 || status=$? ;;
    'apt purge '*) { (as_user "$user" "$command") && check_purged; } >"$log" 2>&1 || status=$? ;;
    'cmake --preset EACH') try_presets "$user" "$log" || status=$? ;;
    *)
      (as_user "$user" "$command") >"$log" 2>&1 &
      wait $! || status=$?
      ;;
  esac
  left=$(left_running)
  if [ -n "$left" ]; then
    echo "left running: $left" >>"$log"
    [ $status != 0 ] || status=left
  fi
  sed -i '$d' "$results"
  printf '%s\t%s\t%d\t%s\t%d\t%s\n' "$user" "$command" $((SECONDS - begun)) "$status" \
    "$(comm -13 "$fresh/packages" <(packages) | wc -l)" "$(comm -13 "$fresh/asked" <(asked_for) | paste -sd ' ')" >>"$results"
  [ "$status" = 0 ] || { tail -n 60 "$log" >&2; echo >&2; return 1; }
}

# ccache on this machine and in there is one.
share_ccache() {
  local cache
  cache=$(ccache --get-config cache_dir 2>/dev/null || echo "${CCACHE_DIR:-$HOME/.cache/ccache}")
  mkdir -p "$cache" "$machine/var/cache/ccache"
  mount --bind "$cache" "$machine/var/cache/ccache"
}

start_machine() {
  mkdir "$machine"
  tar -C "$machine" -xpf "$bare" --numeric-owner
  carry_settings
  mount -t proc proc "$machine/proc"
  mount -t sysfs -o ro sysfs "$machine/sys"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$machine/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$machine/dev/shm"
  chroot "$machine" useradd --create-home --shell /bin/bash somebody
  chmod 0700 "$machine/home/somebody"
}

# Another machine, with the packages that were made on this one and nothing else.
move_packages() {
  local made=$machine$clone/build
  machine=$machine-2 place=/srv
  start_machine
  cp "$made"/*.deb "$machine$place"
  # What somebody would answer, if somebody were there.
  echo 'APT::Get::Assume-Yes "true";' >>"$machine/etc/apt/apt.conf.d/80fresh"
  echo 'debconf debconf/frontend select Noninteractive' | chroot "$machine" debconf-set-selections
  # Debian's PostgreSQL has a service. Nothing is to run in here but what a command starts, and a command's is seen to end.
  printf '#!/bin/sh\nexit 101\n' >"$machine/usr/sbin/policy-rc.d"
  chmod +x "$machine/usr/sbin/policy-rc.d"
}

inside() {
  set -m  # each command in a process group of its own, as in a terminal
  start_machine
  share_ccache
  clone_for root /root
  local number=0 status=0 step user command
  for step; do
    user=${step%%$'\t'*} command=${step#*$'\t'} number=$((number + 1))
    if [ $status != 0 ]; then
      [ "$user" = - ] || printf '%s\t%s\t-\tnot run\t\t\n' "$user" "$command" >>"$results"
      continue
    fi
    if [ "$user" = - ]; then
      say "$command"
      move_packages
      continue
    fi
    [ "$user" = root ] || [ "$place" != "$clone" ] || let_somebody_in
    try "$user" "$command" $number || status=1
  done
  machine=$fresh/root
  for user in root somebody; do
    [ ! -e "$machine/tmp/ccache-$user.log" ] || say "ccache, as $user: $(grep -cE '^(direct|preprocessed)_cache_hit' "$machine/tmp/ccache-$user.log")" \
      "from the cache, $(grep -c '^cache_miss' "$machine/tmp/ccache-$user.log") compiled"
  done
  return $status
}

if [ "${1-}" = --inside ]; then
  shift
  inside "$@"
else
  main "$@"
fi
