#!/bin/bash
# Fails on a program that was not built with the protections of cmake/Hardening.cmake.
# usage: check_hardening.sh PROGRAM
set -euo pipefail
export LC_ALL=C
program=${1:?usage: check_hardening.sh PROGRAM}
problems=0

# expect WHAT PATTERN TEXT: TEXT has a line that matches PATTERN.
expect() {
  if ! grep -qE "$2" <<<"$3"; then
    echo "$program: $1 is missing" >&2
    problems=$((problems + 1))
  fi
}

headers=$(readelf --file-header --program-headers --wide "$program")
dynamic=$(readelf --dynamic --wide "$program")
symbols=$(readelf --dyn-syms --wide "$program")

expect "position independence (PIE)" 'Type: +DYN' "$headers"
expect "RELRO" 'GNU_RELRO' "$headers"
expect "immediate binding (NOW)" 'BIND_NOW|FLAGS.*NOW' "$dynamic"
expect "a non-executable stack" 'GNU_STACK.* RW ' "$headers"
expect "the stack protector" '__stack_chk_fail' "$symbols"
expect "_FORTIFY_SOURCE" '_chk(@|$)' "$symbols"
if grep -qE 'Machine:.*X86-64' <<<"$headers"; then
  expect "the shadow stack note" 'x86 feature:.*SHSTK' "$(readelf --notes --wide "$program")"
  expect "landing pads for indirect branches" 'endbr64' "$(objdump --disassemble=main --no-show-raw-insn "$program")"
fi

if [ "$problems" -gt 0 ]; then
  exit 1
fi
echo "$program is hardened"
