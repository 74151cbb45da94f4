#!/bin/bash
# Shows that every check can fail: a small sound tree passes all of them, and one fault at a time fails its check.
# usage: test_checks.sh
# shellcheck disable=SC2016,SC2054 # backticks of tables and commas of linker options
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
failures=0

fresh_tree() {
  rm -rf "$tree"
  mkdir -p "$tree/src/low" "$tree/src/high" "$tree/src/pg" "$tree/include/faultline" "$tree/tests/low"
  cp "$here/../.clang-format" "$here/../.clang-tidy" "$tree"
  cat >"$tree/src/README.md" <<'TABLE'
| folder | what lives there | may include |
| --- | --- | --- |
| `faultline` | values | - |
| `pg` | libpq | `faultline` |
| `low` | low | `faultline` |
| `high` | high | `low` |
TABLE
  printf '#include <string>\n' >"$tree/include/faultline/value.h"
  printf '#include <libpq-fe.h>\n' >"$tree/src/pg/connection.h"
  printf '#include "faultline/value.h"\n' >"$tree/src/low/low.h"
  printf '#include "low/low.h"\n' >"$tree/src/high/high.h"
  printf 'int main() {}\n' >"$tree/tests/low/low_test.cc"
  printf 'session s\n' >"$tree/tests/low/claim.spec"
}

# passes CHECK… / fails PATTERN CHECK…: PATTERN is in what the check says.
passes() {
  "$@" >"$scratch/output" 2>&1 && return
  echo "FAIL: a sound tree does not pass $*:" && cat "$scratch/output"
  failures=$((failures + 1))
}
fails() {
  local pattern=$1
  shift
  if "$@" >"$scratch/output" 2>&1; then
    echo "FAIL: expected '$pattern', but it passed: $*"
  elif ! grep -qE -- "$pattern" "$scratch/output"; then
    echo "FAIL: expected '$pattern' from $*, but it said:" && cat "$scratch/output"
  else
    return 0
  fi
  failures=$((failures + 1))
}

arrows() {
  fresh_tree && passes "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '#include "high/high.h"' >>"$tree/src/low/low.h"
  fails 'src/low/low.h:2: low may not include "high/high.h"' "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '#  include <libpq-fe.h>' >>"$tree/src/low/low.h"
  fails 'src/low/low.h:2: only src/pg includes libpq' "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '#include <nlohmann/json.hpp>' >>"$tree/include/faultline/value.h"
  fails 'value.h:2: the public API includes standard headers only' "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '#include "pg/connection.h"' >>"$tree/include/faultline/value.h"
  fails 'value.h:2: faultline may not include' "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '#include "low.h"' >>"$tree/src/low/low.h"
  fails 'low.h:2: name the folder' "$here/check_arrows.sh" "$tree"
  fresh_tree && mkdir "$tree/src/attic"
  fails 'src/attic: has no row' "$here/check_arrows.sh" "$tree"
  fresh_tree && echo '| `gone` | nothing | - |' >>"$tree/src/README.md"
  fails 'names gone, which does not exist' "$here/check_arrows.sh" "$tree"
  fresh_tree && sed -i 's/| low | `faultline` |/| low | `faultline` `high` |/' "$tree/src/README.md"
  fails 'high, which does not stand above it' "$here/check_arrows.sh" "$tree"
}

registration() {
  local check=("$here/check_tests_registered.sh" "$scratch/build" "$tree")
  rm -rf "$scratch/build"
  mkdir -p "$scratch/build/tests"
  printf '  "file": "%s",\n' "$tree/tests/low/low_test.cc" >"$scratch/build/compile_commands.json"
  echo 'add_test([=[isolation]=] "isolationtester" "low/claim.spec")' >"$scratch/build/tests/CTestTestfile.cmake"
  fresh_tree && passes "${check[@]}"
  fresh_tree && touch "$tree/tests/low/forgotten_test.cc"
  fails 'tests/low/forgotten_test.cc: no CMakeLists.txt' "${check[@]}"
  fresh_tree && touch "$tree/tests/low/w_test.cc"
  fails 'tests/low/w_test.cc: no' "${check[@]}"
  fresh_tree && touch "$tree/tests/low/laim.spec"
  fails 'tests/low/laim.spec: no' "${check[@]}"
  fresh_tree && echo 'add_test([==[LowTest]==] [==[a_test]==])' >"$scratch/build/tests/a_test_suites.cmake"
  passes "${check[@]}"
  echo 'add_test([==[LowTest]==] [==[b_test]==])' >"$scratch/build/tests/b_test_suites.cmake"
  fails 'LowTest: two programs' "${check[@]}"
  rm "$scratch/build/tests/b_test_suites.cmake"
  fresh_tree && : >"$scratch/build/compile_commands.json"
  fails 'tests/low/low_test.cc: no' "${check[@]}"
}

paths() {
  fresh_tree && passes "$here/check_paths.sh" "$tree"
  local home=/home host=registry
  fresh_tree && echo "see $home/jane/notes" >>"$tree/src/README.md"
  fails 'src/README.md:7:see' "$here/check_paths.sh" "$tree"
  fresh_tree && echo "FROM $host.example.com/image" >"$tree/Dockerfile"
  fails 'Dockerfile:1:FROM' "$here/check_paths.sh" "$tree"
}

format() {
  fresh_tree && passes "$here/check_format.sh" "$tree"
  fresh_tree && echo 'int  x ;' >>"$tree/src/low/low.h"
  fails 'low.h:2.*clang-format' "$here/check_format.sh" "$tree"
}

hardening() {
  local compiler=${CXX:-g++} hard=(-O2 -D_FORTIFY_SOURCE=3 -fstack-protector-all -pie -fPIE -Wl,-z,relro,-z,now)
  [ "$(uname -m)" != x86_64 ] || hard+=(-fcf-protection=full -Wl,-z,shstk)
  printf '#include <cstdio>\n#include <cstring>\nint main(int, char** argv) { char b[9]; std::strcpy(b, argv[0]); std::puts(b); }\n' \
    >"$scratch/program.cc"
  build() { "$compiler" "$scratch/program.cc" -o "$scratch/program" "$@"; }
  build "${hard[@]}" && passes "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -fno-pie -no-pie && fails 'PIE' "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -Wl,-z,norelro && fails 'RELRO' "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -Wl,-z,lazy && fails 'NOW' "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -Wl,-z,execstack && fails 'non-executable stack' "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -fno-stack-protector && fails 'stack protector' "$here/check_hardening.sh" "$scratch/program"
  build "${hard[@]}" -U_FORTIFY_SOURCE && fails 'FORTIFY' "$here/check_hardening.sh" "$scratch/program"
  [ "$(uname -m)" = x86_64 ] || return 0
  build "${hard[@]}" -fcf-protection=none && fails 'landing pads' "$here/check_hardening.sh" "$scratch/program"
}

migration_numbers() {
  local script=$scratch/numbers.cmake
  printf 'include("%s/../cmake/EmbedSql.cmake")\nfaultline_check_migration_numbers(${FILES})\nfaultline_check_statement_names(${NAMES})\n' \
    "$here" >"$script"
  passes cmake "-DFILES=0001_a.sql;0002_b.sql" "-DNAMES=jobs_claim.sql" -P "$script"
  fails 'must be number 2' cmake "-DFILES=0001_a.sql;0003_b.sql" -P "$script"
  fails 'must be number 2' cmake "-DFILES=0001_a.sql;0001_b.sql" -P "$script"
  fails 'NNNN_what' cmake "-DFILES=1_a.sql" -P "$script"
  fails 'lower_snake_case' cmake "-DNAMES=JobsClaim.sql" -P "$script"
}

tidy() {
  fresh_tree
  if ! command -v clang-tidy-19 >/dev/null; then
    echo "clang-tidy-19 is not installed: its configuration was not tried"
    return
  fi
  printf 'namespace faultline {\nint answer() { return 42; }\n}  // namespace faultline\n' >"$tree/src/low/low.cc"
  passes clang-tidy-19 --quiet "$tree/src/low/low.cc" -- -std=c++23
  printf '#include <string>\nint length(std::string text) { return int(text.size()); }\n' >"$tree/src/low/low.cc"
  fails 'performance-unnecessary-value-param' clang-tidy-19 --quiet "$tree/src/low/low.cc" -- -std=c++23
  printf 'int BadName() { return 1; }\n' >"$tree/src/low/low.cc"
  fails 'readability-identifier-naming' clang-tidy-19 --quiet "$tree/src/low/low.cc" -- -std=c++23
}

packages() {
  if ! command -v lintian >/dev/null; then
    echo "lintian is not installed: what it says of packages was not tried"
    return
  fi
  local package=$scratch/package
  mkdir -p "$package/DEBIAN" "$package/usr/share/doc/low" "$package/usr/share/low"
  echo 'Here I am.' >"$package/usr/share/low/it"
  printf 'Copyright 2026 Jane\nLicense: see /usr/share/common-licenses/Apache-2.0\n' >"$package/usr/share/doc/low/copyright"
  printf 'low (1) unstable; urgency=medium\n\n  * It is here.\n\n -- Jane <jane@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n' |
    gzip -9n >"$package/usr/share/doc/low/changelog.gz"
  # pack MAIL
  pack() {
    printf '%s\n' 'Package: low' 'Version: 1' 'Architecture: all' 'Section: misc' 'Priority: optional' "Maintainer: Jane <$1>" \
      'Description: lowest of packages' ' It holds next to nothing, and is here to be looked at by those who' \
      ' look at packages, who want two lines.' >"$package/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$package" "$scratch/low_1_all.deb" >/dev/null
  }
  pack jane@example.org && passes "$here/check_packages.sh" "$scratch/low_1_all.deb"
  pack jane@localhost && fails 'E: .*bogus-mail-host' "$here/check_packages.sh" "$scratch/low_1_all.deb"
  rm -r "$package/usr/share/low" && pack jane@example.org &&
    fails 'W: .*empty-binary-package' "$here/check_packages.sh" "$scratch/low_1_all.deb"
}

for group in arrows registration paths format hardening migration_numbers tidy packages; do
  "$group"
  echo "tried: $group"
done
[ "$failures" = 0 ]
