# shellcheck shell=bash
# Shared by ./dev and the checks in tools/. Sourced, not run.

# Every file that belongs to the tree $1 as git sees it (tracked, or new and not ignored), relative, one per line.
# Without git or outside a clone, such as in an unpacked archive, everything but build output.
project_files() {
  local root=$1
  if [ -e "$root/.git" ] && command -v git >/dev/null; then
    # A clone owned by another user, as in a container, is fine to list. Deleted files are still in the index.
    git -c safe.directory="$root" -C "$root" ls-files --cached --others --exclude-standard --deduplicate |
      while IFS= read -r file; do [ -f "$root/$file" ] && printf '%s\n' "$file"; done
  else
    (cd "$root" && find . -path ./build -prune -o -path ./.git -prune -o -type f -print | sed 's|^\./||')
  fi | LC_ALL=C sort
}

# The C++ files of the tree $1.
cxx_files() {
  project_files "$1" | grep -E '^(src|include|tests|bench|drills|examples|fuzz)/.*\.(h|cc)$' || true
}
