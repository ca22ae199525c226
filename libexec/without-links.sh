#!/bin/sh
# without-links.sh [--only SHOWN] [DIRECTORY IDENTITY]... -- PROGRAM ARGUMENT...: runs a program that finds
# the directories at 1, 2, …, beside this script, without mounts in them and with all symbolic links disabled
# (nosymfollow, Linux 5.10). Start it in a mount namespace of its own (lib/helper/commands.ts). IDENTITY is the device and
# inode number of an open directory: another directory at the same path is refused. With --only the program has
# a root of its own, where it finds the directories at /1, /2, …, SHOWN at /only, podman's policy and /usr, the
# last three only to be read: no name and no link leads it to another file of this machine. Its /proc has the
# program alone, which has to be the first of a namespace of processes.
set -eu

only=''
if [ "$1" = --only ]; then
  only=$2
  shift 2
fi

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
if [ -z "$only" ]; then exec "$@"; fi

# show DIRECTORY NAME: shows a directory of this machine in the new root.
show() {
  mkdir -p "$here/$2"
  mount --no-canonicalize --bind "$1" "$here/$2"
  mount --no-canonicalize -o remount,bind,ro,nosuid,nodev "$here/$2"
}
show "$only" only
show /usr usr
for name in bin sbin lib lib64; do
  if [ -L "/$name" ]; then
    ln -s "usr/$name" "$here/$name"
  elif [ -d "/$name" ]; then
    show "/$name" "$name"
  fi
done
mkdir -p "$here/proc" "$here/etc/containers"
mount --no-canonicalize -t proc -o nosuid,nodev,noexec,subset=pid svc-proc "$here/proc"
policy=/etc/containers/policy.json
if [ -e "$policy" ]; then cp "$policy" "$here$policy"; fi
exec chroot "$here" "$@"
