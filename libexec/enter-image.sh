#!/bin/sh
# enter-image.sh USERS CAPABILITIES PROGRAM ARGUMENT...: runs a program of an image inside it. Started by
# lib/helper/packer/sandbox.ts in the namespaces of hold-image.sh, with the image as the working directory and
# this machine's root, which no program of the image sees. USERS is the file of a user namespace, or '';
# CAPABILITIES are those left to the program, in the form of setpriv.
set -eu

users=$1
capabilities=$2
shift 2

# The program gets the signal too, and cleans up.
trap 'exit 143' TERM
# shellcheck disable=SC3045 # dash has it
ulimit -c 0

env=$(command -v env)
setpriv=$(command -v setpriv)
chroot=$(command -v chroot)
set -- "$setpriv" --no-new-privs --inh-caps=-all --bounding-set="$capabilities" -- \
  "$env" -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TMPDIR=/tmp DRACUT_NO_MKNOD=1 \
  TERM="${TERM:-dumb}" "$chroot" . "$@"
if [ -n "$users" ]; then
  set -- nsenter --no-fork --user="$users" -- "$@"
fi
# Not exec: processes started from here on are inside the process namespace.
"$@"
