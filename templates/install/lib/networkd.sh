# Files of systemd-networkd (Debian). Their names sort before those that netplan makes from files of the
# image, which would match every network card.

networkd_files() {
  network_clear /etc/systemd/network 05-svc- || return 1
  each_interface networkd_interface || return 1
  # Debian does not enable systemd-networkd by itself.
  for unit_directory in /usr/lib/systemd/system /lib/systemd/system; do
    if [ -f "$_SYSTEMROOT$unit_directory/systemd-networkd.service" ]; then
      networkd_enable multi-user.target systemd-networkd.service &&
        networkd_enable sockets.target systemd-networkd.socket &&
        networkd_enable network-online.target systemd-networkd-wait-online.service
      return
    fi
  done
}

networkd_enable() {
  image_link "$unit_directory/$2" "/etc/systemd/system/$1.wants/$2"
}

networkd_interface() {
  if [ "$IF_KIND" = further ]; then
    return 0
  fi
  case $IF_KIND in
    bond | bridge | vlan) networkd_device | image_place "/etc/systemd/network/05-svc-$IF_NAME.netdev" 644 || return 1 ;;
  esac
  networkd_file | image_place "/etc/systemd/network/05-svc-$IF_NAME.network" 644
}

# Writes a device that the kernel has to make.
networkd_device() {
  printf '[NetDev]\nName=%s\nKind=%s\n' "$IF_NAME" "$IF_KIND"
  given 'MACAddress=%s\n' "$IF_MAC"
  case $IF_KIND in
    bond) printf '\n[Bond]\nMode=%s\nMIIMonitorSec=100ms\n' "$IF_MODE" ;;
    bridge) printf '\n[Bridge]\nSTP=no\n' ;;
    vlan) printf '\n[VLAN]\nId=%s\n' "$IF_VLAN" ;;
  esac
}

networkd_file() {
  printf '[Match]\n'
  if [ "$IF_KIND" = ethernet ] && [ -n "$IF_MAC" ]; then
    # A bridge or VLAN on top has the same address, and a member that of its bond.
    printf 'PermanentMACAddress=%s\nType=ether\n' "$IF_MAC"
  else
    printf 'Name=%s\n' "$IF_DEVICE"
  fi
  # A card without a link must not delay the boot, unless the node is provisioned over it.
  if [ -n "$IF_MTU" ] || [ -z "$IF_PROVISION" ] || [ "$IF_METHOD" = none ]; then
    printf '\n[Link]\n'
    given 'MTUBytes=%s\n' "$IF_MTU"
    if [ -z "$IF_PROVISION" ] || [ "$IF_METHOD" = none ]; then
      printf 'RequiredForOnline=no\n'
    fi
  fi
  printf '\n[Network]\n'
  case $IF_MASTER_KIND in
    bond) printf 'Bond=%s\n' "$IF_MASTER" ;;
    bridge) printf 'Bridge=%s\n' "$IF_MASTER" ;;
  esac
  for vlan in $(related "$_VLANS" "$IF_NAME"); do
    printf 'VLAN=%s\n' "${vlan%>*}"
  done
  # The root comes over it.
  if [ -n "$IF_PROVISION" ] && [ -e /sys/block/nbd0/pid ]; then
    printf 'KeepConfiguration=yes\n'
  fi
  given "Address=%s/$IF_PREFIXLEN\n" "$IF_ADDRESS"
  if [ "$IF_METHOD" != none ]; then
    for further in $(related "$_FURTHER" "$IF_NAME"); do
      printf 'Address=%s\n' "$further"
    done
  fi
  case $IF_METHOD in
    none) printf 'LinkLocalAddressing=no\n' ;;
    dhcp) networkd_dhcp ;;
    static)
      if [ -z "$IF_METRIC" ]; then
        given 'Gateway=%s\n' "$IF_GATEWAY"
      fi
      for server in $IF_NAMESERVER; do
        printf 'DNS=%s\n' "$server"
      done
      given 'Domains=%s\n' "$IF_DOMAIN"
      if [ -n "$IF_METRIC" ]; then
        given "\n[Route]\nGateway=%s\nMetric=$IF_METRIC\n" "$IF_GATEWAY"
      fi
      ;;
  esac
  if [ "$IF_METHOD" != none ]; then
    interface_routes "\n[Route]\nDestination=%s\nGateway=%s\n${IF_METRIC:+Metric=$IF_METRIC\n}"
  fi
}

networkd_dhcp() {
  # The lease follows the MAC, not an identifier that each new system invents.
  if [ -n "$IF_GUID" ]; then
    printf 'DHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=duid\nIAID=0\nDUIDType=vendor\nDUIDRawData=00:00:02:c9:00:%s\n' "$IF_GUID"
  else
    printf 'DHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=mac\n'
  fi
  given 'RouteMetric=%s\n' "$IF_METRIC"
  # The gateway may be among the routes that the server sends.
  if [ -z "$IF_DEFAULT" ]; then
    printf 'UseGateway=no\nUseRoutes=no\n'
  fi
}
