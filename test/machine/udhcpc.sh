#!/bin/busybox sh
# Called by udhcpc with what the DHCP server said in the environment.
# shellcheck disable=SC2154
case $1 in
deconfig)
    ip address flush dev "$interface"
    ip link set "$interface" up
    ;;
bound | renew)
    ip address add "$ip/$mask" dev "$interface"
    [ -z "$router" ] || ip route add default via "${router%% *}"
    ;;
esac
