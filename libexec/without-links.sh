#!/bin/sh
# without-links.sh [DIRECTORY IDENTITY]... -- PROGRAM ARGUMENT...: runs a program that finds the directories
# at 1, 2, …, beside this script, without mounts in them and with all symbolic links disabled (nosymfollow,
# Linux 5.10). Start it in a mount namespace of its own (lib/helper/commands.ts). IDENTITY is the device and
# inode number of an open directory: another directory at the same path is refused.
set -eu

here=${0%/*}
flagged() {
  grep -c -E '^([^ ]* ){5}[^ ]*nosymfollow' /proc/self/mountinfo || :
}

wanted=$(flagged)
mount --no-canonicalize -t tmpfs -o nosuid,nodev,noexec,mode=0700,size=64k svc-apart "$here"
count=0
while [ "$1" != -- ]; do
  count=$((count + 1))
  mkdir "$here/$count"
  # In a subshell: the program keeps its own working directory.
  (
    cd -P -- "$1"
    if [ "$(stat -c %d:%i .)" != "$2" ]; then
      echo "$1 was replaced while it was in use" >&2
      exit 1
    fi
    mount --no-canonicalize --bind . "$here/$count"
  )
  mount --no-canonicalize -o remount,bind,nosymfollow "$here/$count"
  shift 2
done
shift
# Older kernels and older versions of mount ignore the option silently.
if [ "$(flagged)" -lt "$((wanted + count))" ]; then
  echo 'symbolic links cannot be shut off here: that takes Linux 5.10 or later,' \
    'and a mount(8) that knows nosymfollow' >&2
  exit 1
fi
exec "$@"
