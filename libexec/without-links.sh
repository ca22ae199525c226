#!/bin/sh
# without-links.sh [DIRECTORY IDENTITY]... -- PROGRAM ARGUMENT...: runs a program that finds the directories
# at 1, 2, …, beside this script: without what is mounted in them, and no symbolic link below them leads
# anywhere (nosymfollow, Linux 5.10). To be started in a mount namespace of its own (lib/helper/commands.ts).
# IDENTITY is the device's and the inode's number of a directory that is held open: whatever has its path
# meanwhile, no other one is taken.
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
  # The program keeps its own working directory.
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
# An older kernel or an older mount says nothing.
if [ "$(flagged)" -lt "$((wanted + count))" ]; then
  echo 'symbolic links cannot be shut off here: that takes Linux 5.10 or later, and a mount(8) that knows nosymfollow' >&2
  exit 1
fi
exec "$@"
