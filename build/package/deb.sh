#!/bin/sh
# deb.sh ARCH OUT: makes OUT/svcd_<version>_<ARCH>.deb for amd64 or arm64 from a built checkout. The same
# commit gives the same bytes.
set -eu
cd "$(dirname "$0")/../.."
arch=$1
out=$2
# shellcheck source=version.sh
. build/package/version.sh

install -d "$out"
work=$(mktemp -d "$out/.deb-XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
sh build/package/stage.sh "$root" "$arch"

documents=$root/usr/share/doc/svcd
# Debian has the licence in common-licenses.
rm "$documents/LICENSE"
install -m 0644 build/package/debian/copyright "$documents"
changes=/usr/share/doc/svcd/CHANGELOG.md
printf 'svcd (%s) unstable; urgency=medium\n\n  * %s has the changes.\n\n -- %s  %s\n' \
  "$version" "$changes" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
  gzip -9n >"$documents/changelog.gz"
install -D -m 0644 build/package/debian/lintian-overrides "$root/usr/share/lintian/overrides/svcd"

install -d "$root/DEBIAN"
size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' |
  awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$size/" -e "s|@MAINTAINER@|$maintainer|" \
  -e "s|@HOMEPAGE@|$homepage|" \
  build/package/debian/control >"$root/DEBIAN/control"
(cd "$root" && find etc -type f -printf '/%p\n') | sort >"$root/DEBIAN/conffiles"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) \
  >"$root/DEBIAN/md5sums"
chmod 0644 "$root"/DEBIAN/*
install -m 0755 build/package/debian/postinst build/package/debian/prerm \
  build/package/debian/postrm "$root/DEBIAN"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

package=svcd_${version}_$arch.deb
echo 'compressing, this takes a minute' >&2
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$work/$package" >/dev/null
mv "$work/$package" "$out/$package"
echo "$out/$package"
