#!/bin/sh
# Called by a DHCP client with the server's values in the environment. udhcpc passes the event as the first
# argument, dhclient and dhcpcd in the variable `reason`. A server is not trusted, so values are quoted.
# shellcheck disable=SC2154

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

resolver() {
  for server in $1; do
    case $server in
      *[!0-9a-fA-F:.]*) ;;
      *) printf 'nameserver %s\n' "$server" ;;
    esac
  done > /etc/resolv.conf
}

# Takes an address with prefix length or netmask, routers, name servers. dhcpcd sets address and route itself.
bound() {
  ip address add "$1" dev "$interface" 2>/dev/null
  case $(ip route show dev "$interface") in
    *default*) ;;
    *)
      if [ -n "${2%% *}" ]; then
        ip route add default via "${2%% *}" dev "$interface"
      fi
      ;;
  esac
  set -f
  resolver "$3"
}

case ${1:-}${reason:-} in
  deconfig | PREINIT)
    ip -4 address flush dev "$interface"
    ip link set dev "$interface" up
    ;;
  bound) bound "$ip/$mask" "${router:-}" "${dns:-}" ;;
  BOUND | REBOOT)
    bound "$new_ip_address/${new_subnet_mask:-32}" "${new_routers:-}" "${new_domain_name_servers:-}"
    ;;
esac
exit 0
