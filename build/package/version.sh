#!/bin/sh
# Sourced by deb.sh and rpm.sh in a checkout: sets `version`, `maintainer` and `homepage` from package.json,
# and SOURCE_DATE_EPOCH to the time of the commit. Also sets umask, language and time zone, which would change
# the bytes. The version is plain at the commit with the tag v<version>; otherwise the commit follows, which
# sorts later. Without git, SOURCE_DATE_EPOCH must be given.
set -eu
umask 022
LC_ALL=C.UTF-8 TZ=UTC
export LC_ALL TZ

field() {
  sed -n 's/^  "'"$1"'": "\(.*\)",$/\1/p' package.json | grep . || {
    echo "package.json names no $1" >&2
    return 1
  }
}
version=$(field version)
# shellcheck disable=SC2034 # for those who read this
maintainer=$(field author)
# shellcheck disable=SC2034
homepage=$(field homepage)

# Not the repository of somebody else into which our tarball was unpacked.
GIT_CEILING_DIRECTORIES=$(dirname "$PWD")
export GIT_CEILING_DIRECTORIES
if ! epoch=$(git log -1 --format=%ct 2>/dev/null); then
  : "${SOURCE_DATE_EPOCH:?is needed where there is no git: seconds since 1970}"
  epoch=$SOURCE_DATE_EPOCH
elif test -n "$(git status --porcelain)"; then
  # The tree differs from its commit, so no other build has to give the same bytes.
  version=$version+git$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(git rev-parse HEAD | cut -c1-7).dirty
elif ! git tag --points-at HEAD | grep -qx "v$version"; then
  version=$version+git$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(git rev-parse HEAD | cut -c1-7)
fi
SOURCE_DATE_EPOCH=$epoch
export SOURCE_DATE_EPOCH
