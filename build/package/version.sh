#!/bin/sh
# Prints the version of a package and the time of its commit, in seconds: that of package.json at the commit with the tag
# v<version>, else with the commit behind it, which sorts later. SOURCE_DATE_EPOCH stands in where there is no git.
set -eu
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' package.json)

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
echo "$version"
echo "$epoch"
