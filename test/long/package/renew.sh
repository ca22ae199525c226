#!/bin/sh
# renew.sh OLD NEW: a later version of a package, with another ini and another template.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dpkg-deb -R "$1" "$work"
sed -i 's/^Version: .*/&.1/' "$work/DEBIAN/control"
echo '# of the later version' >>"$work/etc/svcd/templates/boot/templ_boot_disk.cfg"
sed -i '2i# of the later version' "$work/etc/svcd/svcd.ini"
dpkg-deb --root-owner-group -Znone -b "$work" "$2" >/dev/null
