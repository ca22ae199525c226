#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a machine under test: makes the place that dracut or initramfs-tools make, lets the
# node's own side (dracut/90svc) install the machine, says what it finds on /sysroot and switches off. Lines
# that begin with STAGE are for the test.
#
# Kernel arguments of the test: test.other=NODE asks for another node's install script as well; test.init=PATH
# goes on in the system on /sysroot, with that program of it as the first process; test.log=1 prints the event
# log of the TPM and does nothing else.

/bin/busybox mkdir -p /dev /etc /proc /run /sys /tmp
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

# argument NAME: the value of a kernel argument.
argument() {
    tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"
}

if [ -n "$(argument test.log)" ]; then
    mount -t securityfs securityfs /sys/kernel/security
    base64 /sys/kernel/security/tpm0/binary_bios_measurements | sed 's/^/LOG /'
    echo 'LOG end'
    exit
fi

stage kernel
/usr/lib/svc/svc-node.sh || stage "the node's side ended with $?"
stage "host name $(hostname)"
stage "addresses left:$(ip -4 -o address show dev eth0)"
stage "root $(awk '$2 == "/sysroot" {print $1, $3}' /proc/mounts)"
stage "tree $(sh /lib/tree-sum.sh /sysroot/usr)"

init=$(argument test.init)
if [ -n "$init" ]; then
    trap - EXIT
    exec switch_root /sysroot "$init"
fi

other=$(argument test.other)
if [ -n "$other" ]; then
    ip link set eth0 up
    ip address add "$(argument svc.ip)" dev eth0
    # A virtual link is there at once, the bridge's port a moment later.
    for _ in 1 2 3 4 5; do
        reason=$(wget -O /tmp/other.sh "$(argument svc.url)/boot/install/$other" 2>&1 | grep '^wget: server')
        [ -z "$reason" ] || break
        [ ! -s /tmp/other.sh ] || reason=served
        sleep 1
    done
    stage "script of $other: $reason"
fi
