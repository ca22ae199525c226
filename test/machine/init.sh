#!/bin/busybox sh
# The first process of a machine under test. It does what a node's initramfs does between the kernel and the
# install script: read the svc.* kernel arguments, bring the provision interface up, fetch the script, run
# it. Then it says what it finds on /sysroot and switches the machine off. Lines that begin with STAGE are
# for the test.
#
# Kernel arguments of the test: test.other=NODE asks for another node's install script as well.

/bin/busybox mkdir -p /dev /proc /run /sys /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1

stage() {
    read -r uptime _ </proc/uptime
    echo "STAGE $uptime $*"
}

# The end of process 1 would be a kernel panic: whatever happens, the machine goes off.
off() {
    sync
    umount /sysroot/* /sysroot 2>/dev/null
    poweroff -f
}
trap off EXIT

while read -r module; do
    insmod "/lib/modules/$module.ko" || stage "no module $module"
done </lib/modules/order

other=
# shellcheck disable=SC2013 # words, not lines
for word in $(cat /proc/cmdline); do
    case $word in
    svc.bootproto=*) export SVC_BOOTPROTO="${word#*=}" ;;
    svc.mac=*) export SVC_MAC="${word#*=}" ;;
    svc.ip=*) export SVC_IP="${word#*=}" ;;
    svc.url=*) export SVC_URL="${word#*=}" ;;
    svc.node=*) export SVC_NODE="${word#*=}" ;;
    svc.hostname=*) export SVC_HOSTNAME="${word#*=}" ;;
    svc.service=*) export SVC_SERVICE="${word#*=}" ;;
    test.other=*) other=${word#*=} ;;
    esac
done
stage "kernel node=$SVC_NODE hostname=$SVC_HOSTNAME mac=$SVC_MAC service=$SVC_SERVICE"
hostname "$SVC_HOSTNAME"

SVC_BOOTIF=
tries=0
while [ -z "$SVC_BOOTIF" ] && [ $tries -lt 50 ]; do
    for device in /sys/class/net/*; do
        if [ "$(cat "$device/address" 2>/dev/null)" = "$SVC_MAC" ]; then SVC_BOOTIF=${device##*/}; fi
    done
    [ -n "$SVC_BOOTIF" ] || usleep 100000
    tries=$((tries + 1))
done
export SVC_BOOTIF
[ -n "$SVC_BOOTIF" ] || { stage "no interface has the address $SVC_MAC"; exit 1; }

ip link set lo up
ip link set "$SVC_BOOTIF" up
if [ "$SVC_BOOTPROTO" = static ]; then
    ip address add "$SVC_IP" dev "$SVC_BOOTIF"
else
    udhcpc -i "$SVC_BOOTIF" -n -q -t 10 -T 1 -s /lib/udhcpc.sh || stage "no DHCP lease"
fi
# A controller outside the node's own network is asked through the interface the node was booted from.
controller=${SVC_URL#*://}
controller=${controller%%[:/]*}
ip route get "$controller" >/dev/null 2>&1 || ip route add default dev "$SVC_BOOTIF"
stage "network $SVC_BOOTPROTO $(ip -4 -o address show dev "$SVC_BOOTIF" | awk '{print $4}')"

# fetch NODE FILE: the node's install script; on failure $reason is what wget says of it.
fetch() {
    reason=$(wget -O "$2" "$SVC_URL/boot/install/$1" 2>&1 | grep '^wget:')
    [ -z "$reason" ]
}

if [ -n "$other" ]; then
    fetch "$other" /tmp/other.sh && reason=served
    stage "script of $other: $reason"
fi

tries=1
until fetch "$SVC_NODE" /tmp/install.sh; do
    stage "install script, attempt $tries: $reason"
    [ $tries -lt 20 ] || exit 1
    tries=$((tries + 1))
    sleep 1
done
stage "install script $(wc -c </tmp/install.sh) bytes"

sh /tmp/install.sh
stage "install script ended with $?"
stage "root $(awk '$2 == "/sysroot" {print $1, $3}' /proc/mounts)"
stage "tree $(sh /lib/tree-sum.sh /sysroot/usr)"
