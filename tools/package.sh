#!/bin/bash
# Makes the Debian packages that tools/debian/control lists, of what BUILD has built, in TARGET.
# usage: package.sh BUILD TARGET
#
# `cmake --install` puts what every system gets into its place, one component per package. What an operating system wants beside
# that is put there here: manual pages, completions, units, guides, examples. dpkg's own tools make packages of it.
#
# No package has a script: an installation starts, enables and migrates nothing, and ldconfig is run by its trigger.
set -euo pipefail
umask 022
repo=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tools/lib.sh
. "$repo/tools/lib.sh"
build=$(cd "$1" && pwd)
mkdir -p "$2"
target=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version=$("$build/faultline" --version)
version=${version##* }
soversion=$(readelf --dynamic "$build/libfaultline.so" | sed -n 's/.*SONAME.*\[libfaultline\.so\.\(.*\)\]/\1/p')
# The same source gives the same packages: their files are no younger than this.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$repo" -C "$repo" log -1 --format=%ct 2>/dev/null || stat -c %Y "$repo/CHANGELOG.md")}
export SOURCE_DATE_EPOCH

# dpkg's tools want this directory, and in it a directory per package.
mkdir "$work/debian"
cd "$work"
sed "s/@SOVERSION@/$soversion/g" "$repo/tools/debian/control" >debian/control
cat >debian/changelog <<END
faultline ($version) UNRELEASED; urgency=medium

  * Made by Faultline's developers. What has changed is in
    /usr/share/doc/faultline/CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
END

# lay_out PACKAGE COMPONENT: begins a package with what CMake installs and with what every package has.
lay_out() {
  local tree=debian/$1
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$1"
  DESTDIR=$work/$tree cmake --install "$build" --prefix /usr --component "$2" --strip >/dev/null
  gzip -9n <debian/changelog >"$tree/usr/share/doc/$1/changelog.gz"
  cp "$repo/tools/debian/copyright" "$tree/usr/share/doc/$1/"
  if [ -e "$repo/tools/debian/$1.lintian-overrides" ]; then
    install -D -m 644 "$repo/tools/debian/$1.lintian-overrides" "$tree/usr/share/lintian/overrides/$1"
  fi
}

# copy FOLDER DIRECTORY: the files that belong to a folder of the repository.
copy() {
  mkdir -p "$2"
  project_files "$repo" | grep "^$1/" | tar -C "$repo" --files-from - --transform "s,^$1/,," --mode u=rwX,go=rX -cf - | tar -C "$2" -xf -
}

# relink UP PAGE…: a guide's links, as the packages have the files. What they do not have is named and not linked. UP leads from
# the page's directory to where the guides are.
relink() {
  local up=$1
  shift
  sed -E -i \
    -e "s#\]\($up\.\./examples/#]($up../libfaultline-dev/examples/#g" \
    -e "s#\]\($up\.\./proto/#]($up../../faultline/proto/#g" \
    -e "s#\]\($up\.\./include/#]($up../../../include/#g" \
    -e "s#\]\($up\.\./(ops/|CHANGELOG\.md)#]($up\1#g" \
    -e "s#\[([^][]*)\]\($up(adr|\.\./(bench|sql|src|tests|README\.md))[^)]*\)#\1#g" "$@"
}

lay_out faultline program
tree=debian/faultline
doc=$tree/usr/share/doc/faultline
mkdir -p $tree/usr/share/man/man1 $tree/usr/share/{bash-completion/completions,zsh/vendor-completions} $tree/etc/faultline
"$build/faultline-dev" man --all $tree/usr/share/man/man1 >/dev/null
gzip -9n $tree/usr/share/man/man1/*.1
"$build/faultline" completion bash >$tree/usr/share/bash-completion/completions/faultline
"$build/faultline" completion zsh >$tree/usr/share/zsh/vendor-completions/_faultline
copy ops/systemd $tree/usr/lib/systemd/system
copy docs $doc
rm -r $doc/adr $doc/images
relink '' $doc/*.md
relink ../ $doc/reference/*.md
cp "$repo/CHANGELOG.md" $doc/
copy ops $doc/ops
rm -r $doc/ops/{systemd,docker}
sed -E -i -e 's#\]\(\.\./docs/#](../#g' -e 's#\[([^][]*)\]\((systemd|docker)/[^)]*\)#\1#g' $doc/ops/README.md
"$build/faultline" config example >$tree/etc/faultline/faultline.toml
chmod 600 $tree/etc/faultline/faultline.toml  # it will hold a password
cp "$repo/tools/debian/faultline.conffiles" $tree/DEBIAN/conffiles

lay_out "libfaultline$soversion" library
lay_out "libfaultline-remote$soversion" remote_library
for library in libfaultline libfaultline-remote; do
  tree=debian/$library$soversion
  echo "$library $soversion $library$soversion (>= $version)" >"$tree/DEBIAN/shlibs"
  echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
done

lay_out libfaultline-dev development
copy examples debian/libfaultline-dev/usr/share/doc/libfaultline-dev/examples

for tree in debian/*/; do
  package=$(basename "$tree")
  mapfile -t programs < <(find "$tree/usr/bin" "$tree"/usr/lib/*/ -maxdepth 1 -type f 2>/dev/null)
  [ ${#programs[@]} = 0 ] ||
    dpkg-shlibdeps -T"debian/$package.substvars" -S"debian/libfaultline$soversion" "${programs[@]}"
  dpkg-gencontrol -p"$package" -P"debian/$package" -T"debian/$package.substvars"
  (cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  dpkg-deb --root-owner-group --build "debian/$package" "$target"
done
