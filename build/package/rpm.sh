#!/bin/sh
# rpm.sh ARCH OUT: makes OUT/svcd-<version>-1.<machine>.rpm for amd64 or arm64 from a built checkout. The same
# commit gives the same bytes.
set -eu
cd "$(dirname "$0")/../.."
command -v rpmbuild >/dev/null || {
  echo 'rpmbuild is missing: install the package rpm (Debian) or rpm-build' >&2
  exit 1
}
case $1 in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) echo "there is no runtime for $1, only for amd64 and arm64" >&2; exit 1 ;;
esac
install -d "$2"
out=$(realpath "$2")
# shellcheck source=version.sh
. build/package/version.sh

work=$(mktemp -d "$out/.rpm-XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
sh build/package/stage.sh "$root" "$1"

# All files with their kinds, and those directories that no other package owns.
echo '%defattr(-,root,root,-)' >"$work/files"
(cd "$root" && find . -type f -o -type l -o -type d \( -path './etc/svcd*' -o -path './usr/lib/svcd*' \
  -o -path './usr/lib/systemd/system/svcd-*' -o -path './usr/share/doc/svcd*' \)) |
  sed 's/^\.//' | LC_ALL=C sort | while read -r file; do
  case $file in
    /etc/svcd/svcd.ini) echo "%config(noreplace) %attr(0640,root,root) \"$file\"" ;;
    /usr/share/doc/* | /usr/share/man/*)
      if test -d "$root$file"; then echo "%dir \"$file\""; else echo "%doc \"$file\""; fi
      ;;
    *)
      if test -d "$root$file"; then echo "%dir \"$file\""
      elif test "${file#/etc/}" != "$file"; then echo "%config(noreplace) \"$file\""
      else echo "\"$file\""; fi
      ;;
  esac
done >>"$work/files"

echo 'compressing, this takes a minute' >&2
rpmbuild --quiet -bb --target "$machine-linux" \
  --define "_topdir $work/top" --define "_rpmdir $work/rpms" \
  --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
  --define "svcd_version $version" --define "svcd_maintainer $maintainer" --define "svcd_homepage $homepage" \
  --define "svcd_root $root" --define "svcd_files $work/files" \
  --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" \
  --define "clamp_mtime_to_source_date_epoch 1" --define "_binary_payload w5.zstdio" \
  build/package/rpm/svcd.spec
mv "$work"/rpms/*.rpm "$out"
echo "$out/svcd-$version-1.$machine.rpm"
