#!/bin/sh
# enter-image.sh TREE SHIPPED ARGUMENT...: runs build-initramfs.sh with the arguments inside the image TREE.
# Started in mount and process namespaces of its own (lib/image/packer/initramfs.ts): what is mounted here is seen by
# nobody else, and ends with the last process. SHIPPED holds dracut/, initramfs-tools/ and libexec/.
set -eu

tree=$1
shipped=$2
shift 2

for directory in proc sys dev run tmp; do
  if [ -L "$tree/$directory" ] || ! [ -d "$tree/$directory" ]; then
    echo "/$directory of the image is not a directory: nothing can be mounted on it" >&2
    exit 1
  fi
done

mount -t proc -o nosuid,nodev,noexec proc "$tree/proc"
# The programs of an image have no business with the settings and disks of this machine.
mount --bind "$tree/proc/sys" "$tree/proc/sys"
mount -o remount,bind,ro "$tree/proc/sys"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$tree/sys"
mount -t tmpfs -o nosuid,mode=0755 svc-dev "$tree/dev"
mount -t tmpfs -o nosuid,nodev,mode=0755 svc-run "$tree/run"
mount -t tmpfs -o nosuid,nodev,mode=1777 svc-tmp "$tree/tmp"

cd "$tree/dev"
mknod -m 666 null c 1 3
mknod -m 666 zero c 1 5
mknod -m 666 full c 1 7
mknod -m 666 random c 1 8
mknod -m 666 urandom c 1 9
ln -s /proc/self/fd fd
ln -s /proc/self/fd/0 stdin
ln -s /proc/self/fd/1 stdout
ln -s /proc/self/fd/2 stderr
mkdir shm

mkdir "$tree/tmp/svc"
cp -R "$shipped/dracut" "$shipped/initramfs-tools" "$shipped/libexec" "$tree/tmp/svc"
cd /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TMPDIR=/tmp \
  chroot "$tree" /bin/sh /tmp/svc/libexec/build-initramfs.sh "$@"
