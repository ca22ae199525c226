#!/bin/busybox sh
# shellcheck shell=dash
# The first process of the controller whose power is cut: mounts the disk, checked, and runs svcd on it.

/bin/busybox mkdir -p /etc /proc /run /sys /tmp /disk
/bin/busybox --install -s /bin
export PATH=/bin LD_LIBRARY_PATH=/lib LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
while read -r module; do insmod "/lib/modules/$module.ko"; done </lib/modules/order
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
/bin/e2fsck -p -f /dev/vda
echo "FSCK $?"
mount -t ext4 /dev/vda /disk || echo 'NO DISK'
/bin/node /svcd/dist/main.js serve --config /svcd/etc/svcd.ini --set paths.state=/disk/state \
    --set paths.files=/disk/files --set image.directory=/disk/images --set http.listen=10.0.2.15:7050 \
    --set auth.token_lifetime=7d --set boot.manual=any --set boot.new_nodes=1000000
echo "SVCD ENDED $?"
poweroff -f
