#!/bin/sh
# without-links.sh MOUNT... -- PROGRAM ARGUMENT...: runs a program that no symbolic link below the first MOUNT leads
# anywhere: the kernel follows none there, in no part of a path (nosymfollow, Linux 5.10). To be started in a mount
# namespace of its own (lib/helper/linkless.ts). The first MOUNT is a directory of any kind, the others are what is mounted
# in it.
set -eu

flagged() {
  grep -c -E '^([^ ]* ){5}[^ ]*nosymfollow' /proc/self/mountinfo || :
}

wanted=$(flagged)
mount --no-canonicalize --rbind "$1" "$1"
while [ "$1" != -- ]; do
  mount --no-canonicalize -o remount,bind,nosymfollow "$1"
  wanted=$((wanted + 1))
  shift
done
shift
# An older kernel or an older mount says nothing.
if [ "$(flagged)" -lt "$wanted" ]; then
  echo 'symbolic links cannot be shut off here: that takes Linux 5.10 or later, and a mount(8) that knows nosymfollow' >&2
  exit 1
fi
exec "$@"
