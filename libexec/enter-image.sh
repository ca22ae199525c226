#!/bin/sh
# enter-image.sh USERS CAPABILITIES PROGRAM ARGUMENT...: runs a program of an image inside it. Started by
# lib/image/packer/sandbox.ts in the namespaces that hold-image.sh made, with the image as the working
# directory and this machine's root, which no program of the image gets to see. USERS is a user namespace's
# file, or ''; CAPABILITIES is what is left to the image's programs, as setpriv takes it.
set -eu

users=$1
capabilities=$2
shift 2

# The image's program gets the signal too, and tidies up.
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
# Not exec: what is started from here on is inside the process namespace.
"$@"
