#!/bin/sh
# hold-image.sh TREE SHIPPED MODULES: makes the image TREE the root of the namespaces that it was started in, and holds
# them until its standard input ends (lib/image/packer/sandbox.ts). SHIPPED holds dracut/, initramfs-tools/ and libexec/;
# MODULES is the directory of dracut's modules below TREE, '' where there is none.
#
# Names in the image may change at any time, and no link in it is followed here: so says the kernel where this is started by
# without-links.sh, until all is mounted. mount is not to resolve paths itself.
#
# Says "ready" when the image is the root. What was the root is mounted at /run/host then, and enter-image.sh takes it
# away before a program of the image runs. From pivot_root on this script starts no program: it would be the image's.
set -eu

tree=$1
shipped=$2
modules=$3

if ! command -v pivot_root >/dev/null; then
  echo "this machine has no pivot_root: apt install util-linux-extra (before version 2.42 it was in util-linux)" >&2
  exit 1
fi
for directory in proc sys dev run tmp; do
  if [ -L "$tree/$directory" ] || ! [ -d "$tree/$directory" ]; then
    echo "/$directory of the image is not a directory: nothing can be mounted on it" >&2
    exit 1
  fi
done

# Without what is mounted in it. Its device nodes and setuid bits mean nothing here.
mount --no-canonicalize --bind "$tree" "$tree"
cd "$tree"
mount --no-canonicalize -t proc -o ro,nosuid,nodev,noexec proc proc
mount --no-canonicalize -t tmpfs -o nosuid,nodev,noexec,mode=0755,size=64k svc-sys sys
mount --no-canonicalize -t tmpfs -o nosuid,noexec,mode=0755,size=64k svc-dev dev
mount --no-canonicalize -t tmpfs -o nosuid,nodev,mode=0755 svc-run run
mount --no-canonicalize -t tmpfs -o nosuid,nodev,mode=1777 svc-tmp tmp

# dracut reads this one, and does without the rest of the hardware's description.
mkdir -p sys/module/firmware_class/parameters
: >sys/module/firmware_class/parameters/path
mount --no-canonicalize -o remount,ro,nosuid,nodev,noexec sys

mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir dev/shm
mount --no-canonicalize -t tmpfs -o nosuid,nodev,noexec,mode=1777 svc-shm dev/shm
# What this machine's kernel tells of itself and its memory.
for file in config.gz kallsyms kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats sched_debug \
  sysrq-trigger timer_list vmallocinfo; do
  if [ -e "proc/$file" ]; then
    mount --no-canonicalize --bind dev/null "proc/$file"
  fi
done
mount --no-canonicalize -o remount,ro,nosuid,noexec dev

# dracut finds the node's side among its modules; the image's own directory stays as it is.
if [ -n "$modules" ]; then
  mkdir run/modules.d
  mount --no-canonicalize --bind "./$modules" run/modules.d
  mount --no-canonicalize -o remount,bind,strictatime run/modules.d || :
  mount --no-canonicalize -t tmpfs -o nosuid,nodev,mode=0755 svc-modules "./$modules"
fi
mkdir tmp/svc run/host
cp -R "$shipped/dracut" "$shipped/initramfs-tools" "$shipped/libexec" tmp/svc

# To the programs of the image, links are links. This takes the flag away: by its name, as mount of util-linux 2.42 keeps it else.
# Each read of a file sets its time of reading, which tells what the initramfs is made of (lib/image/packer/traces.ts).
mount --no-canonicalize -o remount,bind,nosuid,nodev,symfollow,strictatime . ||
  mount --no-canonicalize -o remount,bind,nosuid,nodev,symfollow .
pivot_root . run/host
echo ready
read -r _
