#!/bin/sh
# Boots systemd in the directory $1, apart from everything else: mounts, processes, network and control groups
# of its own. Ends with its first process.
set -e
if [ -z "$CONTAINED" ]; then
  cgroups=$(findmnt -nro TARGET -t cgroup2 | head -n 1)
  group=${cgroups:?no cgroup2 is mounted}/svcd-test-$$
  mkdir "$group"
  echo $$ >"$group/cgroup.procs"
  export CONTAINED=1
  exec unshare --mount --propagation private --pid --net --uts --ipc --cgroup --fork --kill-child sh "$0" "$@"
fi
cd "$1"
mount --bind . .
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
while read -r name minor; do mknod -m 666 "dev/$name" c 1 "$minor"; done <<END
null 3
zero 5
full 7
random 8
urandom 9
END
mknod -m 666 dev/tty c 5 0
ip link set lo up
hostname controller
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /sbin/init --log-target=console
