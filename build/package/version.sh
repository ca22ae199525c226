#!/bin/sh
# What deb.sh and rpm.sh take from the checkout that they stand in, read by "." there: `version`, `maintainer`
# and `homepage` of package.json, and the time of the commit in SOURCE_DATE_EPOCH. It also sets what else
# decides about bytes: umask, language and time zone. The version is plain at the commit with the tag
# v<version>, else it has the commit behind it, which sorts later. SOURCE_DATE_EPOCH stands in where there is
# no git.
set -eu
umask 022
LC_ALL=C.UTF-8 TZ=UTC
export LC_ALL TZ

field() {
  sed -n 's/^  "'"$1"'": "\(.*\)",$/\1/p' package.json | grep . || { echo "package.json names no $1" >&2; return 1; }
}
version=$(field version)
# shellcheck disable=SC2034 # for those who read this
maintainer=$(field author)
# shellcheck disable=SC2034
homepage=$(field homepage)

# Not the repository of somebody else, inside of which a tarball of ours was unpacked.
GIT_CEILING_DIRECTORIES=$(dirname "$PWD")
export GIT_CEILING_DIRECTORIES
if ! epoch=$(git log -1 --format=%ct 2>/dev/null); then
  : "${SOURCE_DATE_EPOCH:?is needed where there is no git: seconds since 1970}"
  epoch=$SOURCE_DATE_EPOCH
elif test -n "$(git status --porcelain)"; then
  # The tree differs from its commit: there are no other bytes to make the same.
  version=$version+git$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(git rev-parse HEAD | cut -c1-7).dirty
elif ! git tag --points-at HEAD | grep -qx "v$version"; then
  version=$version+git$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(git rev-parse HEAD | cut -c1-7)
fi
SOURCE_DATE_EPOCH=$epoch
export SOURCE_DATE_EPOCH
