#!/bin/sh
# `make install`: the built service below DESTDIR (staging, empty for this machine) and PREFIX (/usr). An ini, or
# a template, that the admin has edited stays as it is; the shipped templates lie in lib/svcd/templates too.
set -eu
umask 022
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr}
root=${DESTDIR:-}
code=$root$prefix/lib/svcd
settings=/etc/svcd
state=/var/lib/svcd

fail() {
  echo "$1" >&2
  exit 1
}

test -f dist/commit || fail 'svcd is not built: type "make build" first'
packages=$(npm ls --omit=dev --all --parseable) || fail 'packages are missing: type "npm ci" first'

install -d "$root$settings/roles" "$root$settings/scripts"
install -d -m 0700 "$root$state"

# Edited is what differs from the copy that the last installation left beside the code.
find templates -type f | while read -r file; do
  mine=$root$settings/$file
  if test -e "$mine" && ! cmp -s "$mine" "$code/$file" && ! cmp -s "$mine" "$file"; then
    echo "kept as edited: $mine (shipped: $code/$file)"
  else
    install -D -m 0644 "$file" "$mine"
  fi
done

rm -rf "$code"
install -d "$code/bin"
cp -R dist dracut initramfs-tools libexec templates package.json "$code"
install -m 0755 bin/svcd "$code/bin/svcd"
echo "$packages" | while read -r package; do
  place=${package#"$PWD"}
  test -n "$place" || continue
  install -d "$code${place%/*}"
  cp -R "$package" "$code${place%/*}"
done

# Set-ups of the tracker and the seeders, to be copied by hand, and the documents that tell how.
examples=$code/examples
install -d "$examples"
cp -R etc/nginx-svcd.conf etc/opentracker.conf etc/aria2.conf systemd/*.service.d systemd/svcd-seeder.service "$examples"
documents=$root$prefix/share/doc/svcd
install -d "$documents/docs"
install -m 0644 README.md SECURITY.md CHANGELOG.md LICENSE "$documents"
install -m 0644 docs/*.md "$documents/docs"
# The text that api.md and templates.md begin with.
rm -f "$documents"/docs/*-intro.md

install -d "$root$prefix/bin"
ln -sfn ../lib/svcd/bin/svcd "$root$prefix/bin/svcd"

if test -e "$root$settings/svcd.ini"; then
  echo "kept: $root$settings/svcd.ini"
else
  # 0600: hashes of passwords may be put in.
  node build/ini.mjs \
    "paths.state=$state" "paths.files=$state/files" "image.directory=$state/images" \
    "paths.templates=$settings/templates" "paths.roles=$settings/roles" "paths.scripts=$settings/scripts" \
    >"$root$settings/svcd.ini.new"
  chmod 0600 "$root$settings/svcd.ini.new"
  mv "$root$settings/svcd.ini.new" "$root$settings/svcd.ini"
fi

unit=$root$prefix/lib/systemd/system/svcd.service
install -d "${unit%/*}"
sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" systemd/svcd.service >"$unit"
