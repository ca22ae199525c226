# Files of systemd-networkd (debian).

networkd_files() {
  each_interface networkd_interface || return 1
  # Not enabled in a stock Debian.
  for unit_directory in /usr/lib/systemd/system /lib/systemd/system; do
    if [ -f "$_SYSTEMROOT$unit_directory/systemd-networkd.service" ]; then
      image_link "$unit_directory/systemd-networkd.service" \
        /etc/systemd/system/multi-user.target.wants/systemd-networkd.service
      return
    fi
  done
}

networkd_interface() {
  networkd_file | image_place "/etc/systemd/network/10-svc-$IF_NAME.network" 644
}

networkd_file() {
  printf '[Match]\n'
  if [ -n "$IF_MAC" ]; then
    printf 'MACAddress=%s\n' "$IF_MAC"
    # A bridge or VLAN on top has the same MAC.
    case $IF_TYPE in
      ethernet) printf 'Type=ether\n' ;;
      *) printf 'Type=%s\n' "$IF_TYPE" ;;
    esac
  else
    printf 'Name=%s\n' "$IF_DEVICE"
  fi
  if [ -n "$IF_MTU" ]; then
    printf '\n[Link]\nMTUBytes=%s\n' "$IF_MTU"
  fi
  printf '\n[Network]\n'
  if [ -z "$IF_ADDRESS" ]; then
    # The lease is bound to the MAC, not to an identifier that a fresh image makes up.
    printf 'DHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=mac\n'
    if [ -z "$IF_DEFAULT" ]; then
      printf 'UseGateway=no\n'
    fi
    return 0
  fi
  printf 'Address=%s/%s\n' "$IF_ADDRESS" "$IF_PREFIXLEN"
  if [ -n "$IF_GATEWAY" ]; then
    printf 'Gateway=%s\n' "$IF_GATEWAY"
  fi
  if [ -n "$IF_NAMESERVER" ]; then
    printf 'DNS=%s\n' "$IF_NAMESERVER"
  fi
  if [ -n "$IF_DOMAIN" ]; then
    printf 'Domains=%s\n' "$IF_DOMAIN"
  fi
}
