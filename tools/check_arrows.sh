#!/bin/bash
# Fails on an #include that goes against the table in src/README.md, and on a table that does not fit the tree.
# usage: check_arrows.sh [TREE]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/..}
# shellcheck source=tools/lib.sh
. "$here/lib.sh"

table=$root/src/README.md
problems=0
problem() {
  echo "$*" >&2
  problems=$((problems + 1))
}

# Rows look like: | `store` | what lives there | `base` `pg` |
declare -A may_include
while IFS='|' read -r _ folder _ allowed _; do
  folder=${folder//[\` ]/}
  allowed=${allowed//[\`,]/ }
  for other in $allowed; do
    [ "$other" = - ] || [ -n "${may_include[$other]+x}" ] ||
      problem "src/README.md: $folder may include $other, which does not stand above it in the table"
  done
  may_include[$folder]=" $allowed "
done < <(grep -E "^\\| *\`[a-z_]+\` *\\|" "$table" || true)
[ ${#may_include[@]} -gt 0 ] || problem "src/README.md: no table of folders (rows such as | \`pg\` | … | \`base\` |)"

for path in "$root"/src/*/; do
  folder=$(basename "$path")
  [ -n "${may_include[$folder]+x}" ] || problem "src/$folder: has no row in the table of src/README.md"
done
for folder in "${!may_include[@]}"; do
  [ -d "$root/src/$folder" ] || [ -d "$root/$folder" ] || [ -d "$root/include/$folder" ] ||
    problem "src/README.md: the table names $folder, which does not exist"
done

check_include() {
  local file=$1 line=$2 target=$3 folder=$4
  case $target in
    \<libpq* | \<postgres_ext.h*)
      [ "$folder" = pg ] || problem "$file:$line: only src/pg includes libpq: $target"
      ;;
    \<*[./]*)
      # json.h alone is for programs that use nlohmann-json.
      [ "$folder" != faultline ] || [[ $file == */json.h && $target == \<nlohmann/* ]] ||
        problem "$file:$line: the public API includes standard headers only: $target"
      ;;
    \"*/*)
      local other=${target#\"}
      other=${other%%/*}
      [ "$other" = "$folder" ] || [[ ${may_include[$folder]-} == *" $other "* ]] ||
        problem "$file:$line: $folder may not include $target (see the table in src/README.md)"
      ;;
    \"*)
      problem "$file:$line: name the folder, as in \"pg/result.h\": $target"
      ;;
  esac
}

while IFS= read -r file; do
  case $file in
    src/*/* | include/*/*) folder=${file#*/} folder=${folder%%/*} ;;
    bench/* | drills/*) folder=${file%%/*} ;;
    *) continue ;; # tests and examples may look at everything
  esac
  while IFS=: read -r line target; do
    check_include "$file" "$line" "$target" "$folder"
  done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "$root/$file" |
    sed -E 's/^([0-9]+):[^"<]*(["<][^">]*[">]).*/\1:\2/')
done < <(cxx_files "$root")

if [ "$problems" -gt 0 ]; then
  echo "$problems problem(s) with the include arrows" >&2
  exit 1
fi
