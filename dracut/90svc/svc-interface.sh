# shellcheck shell=sh
# Finds the network interface of the boot by its MAC, because names may differ.

find_interface() {
  if program udevadm; then
    # udev renames an interface some time after it has appeared.
    udevadm settle --timeout=10
  fi
  interface_limit=$(($(uptime_seconds) + SVC_WAIT))
  interface_said=''
  until interface_of "$SVC_MAC"; do
    if [ -z "$interface_said" ]; then
      log "waiting up to $SVC_WAIT s for the network interface with the address $SVC_MAC"
      interface_said=yes
    fi
    if [ "$(uptime_seconds)" -gt "$interface_limit" ]; then
      _REASON="no network interface has the address $SVC_MAC; there are:$(interfaces)"
      return 1
    fi
    nap
  done
  log "interface $SVC_BOOTIF has the address $SVC_MAC"
}

# Finds the card with a MAC. A VLAN has the MAC of the card below it; in a virtual machine a passed-through
# card has the MAC of the virtual card that it is a port of. Ports are never used.
interface_of() {
  SVC_BOOTIF=''
  for interface in /sys/class/net/*; do
    interface_mac=''
    read -r interface_mac 2>/dev/null < "$interface/address"
    # The address of an InfiniBand port has 20 bytes, of which the last 8 are its GUID.
    case $interface_mac in
      "$1" | ??:??:??:??:??:??:??:??:??:??:??:??:"$1") ;;
      *) continue ;;
    esac
    if [ -e "$interface/master" ]; then
      continue
    fi
    if [ -z "$SVC_BOOTIF" ] || [ -e "$interface/device" ]; then
      SVC_BOOTIF=${interface##*/}
    fi
  done
  [ -n "$SVC_BOOTIF" ]
}

interfaces() {
  for interface in /sys/class/net/*; do
    interface_mac=''
    read -r interface_mac 2>/dev/null < "$interface/address"
    printf ' %s (%s)' "${interface##*/}" "$interface_mac"
  done
}

network_up() {
  lease_end
  ip link set dev lo up
  if ! ip link set dev "$SVC_BOOTIF" up; then
    _REASON="interface $SVC_BOOTIF cannot be brought up"
    return 1
  fi
  await_link
  # The link-local address of IPv6 stays: systemd-networkd waits for it, and gives none to an interface that
  # is up.
  ip -4 address flush dev "$SVC_BOOTIF"
  case $SVC_BOOTPROTO in
    static)
      if ! ip address add "$SVC_IP" dev "$SVC_BOOTIF"; then
        _REASON="interface $SVC_BOOTIF does not take the address $SVC_IP"
        return 1
      fi
      ;;
    dhcp) lease || return 1 ;;
  esac
  route_to_controllers
  log "interface $SVC_BOOTIF is up: $SVC_BOOTPROTO$(interface_addresses)"
}

interface_addresses() {
  ip -4 -o address show dev "$SVC_BOOTIF" | sed -n 's|^.* inet \([0-9./]*\) .*$| \1|p'
}

# A switch may forward only some seconds after the link is up. The next step is tried without a link too,
# because not every driver reports it.
await_link() {
  link_limit=$(($(uptime_seconds) + SVC_WAIT))
  link_said=''
  until [ "$(cat "/sys/class/net/$SVC_BOOTIF/carrier" 2>/dev/null)" = 1 ]; do
    if [ -z "$link_said" ]; then
      log "waiting up to $SVC_WAIT s for the link of $SVC_BOOTIF"
      link_said=yes
    fi
    if [ "$(uptime_seconds)" -gt "$link_limit" ]; then
      log "warning: interface $SVC_BOOTIF has no link: is the cable plugged in?"
      return
    fi
    nap
  done
}

# The arguments name no gateway, so a controller outside the node's network is expected on the same wire.
route_to_controllers() {
  set -f
  for controller in $SVC_URL $SVC_OTHERS; do
    controller=${controller#*://}
    controller=${controller##*@}
    controller=${controller%%[:/]*}
    case $controller in
      *[!0-9.]*) continue ;;
    esac
    ip route get "$controller" >/dev/null 2>&1 || ip route add default dev "$SVC_BOOTIF"
  done
  set +f
}

# Gets an address by DHCP, with whichever client is installed. Each client identifies itself by the MAC, as
# iPXE did: a server would give another identifier another address.
lease() {
  lease_script=$_LIB/svc-dhcp.sh
  if program udhcpc; then
    udhcpc -f -n -q -t "$((SVC_WAIT / 3 + 1))" -T 3 -s "$lease_script" -i "$SVC_BOOTIF"
  elif program dhclient; then
    lease_client=hardware
    case $SVC_MAC in
      ??:??:??:??:??:??:??:??) lease_client=ff:00:00:00:00:00:02:00:00:02:c9:00:$SVC_MAC ;;
    esac
    printf 'timeout %s;\nsend dhcp-client-identifier = %s;\n' "$SVC_WAIT" "$lease_client" \
      > "$_TMP/dhclient.conf"
    dhclient -4 -1 -q -cf "$_TMP/dhclient.conf" -lf "$_TMP/dhclient.leases" -pf "$_TMP/dhclient.pid" \
      -sf "$lease_script" "$SVC_BOOTIF"
  elif program dhcpcd; then
    dhcpcd -4 -1 -p -L -I '' -o domain_name_servers -t "$SVC_WAIT" -c "$lease_script" "$SVC_BOOTIF"
  elif program ipconfig; then
    # This client cannot choose its identifier.
    lease_ipconfig
  else
    _REASON='no DHCP client (udhcpc, dhclient, dhcpcd, ipconfig) is in this initramfs'
    return 1
  fi
  if [ -z "$(interface_addresses)" ]; then
    _REASON="no DHCP server gave interface $SVC_BOOTIF ($SVC_MAC) an address"
    return 1
  fi
}

lease_ipconfig() {
  ipconfig -t "$SVC_WAIT" -c dhcp -d "$SVC_BOOTIF"
  # ipconfig writes the server's values as shell variables.
  sed -n "s/^IPV4DNS[01]='\{0,1\}\([0-9.]*\)'\{0,1\}\$/nameserver \1/p" "/run/net-$SVC_BOOTIF.conf" \
    > /etc/resolv.conf
}

# Ends dhclient, which keeps running. udhcpc, dhcpcd and ipconfig exit by themselves.
lease_end() {
  if [ -s "$_TMP/dhclient.pid" ]; then
    kill "$(cat "$_TMP/dhclient.pid")" 2>/dev/null
    rm -f "$_TMP/dhclient.pid"
  fi
}

# The booted system configures its interfaces itself, from files of the install script, and expects them as
# after power-on: NetworkManager ignores an interface with an address, ifup refuses it, and udev cannot rename
# an interface that is up. A root file system on the network keeps its network.
network_down() {
  if root_needs_network; then
    log "interface $SVC_BOOTIF stays up for the root file system"
    return
  fi
  lease_end
  ip address flush dev "$SVC_BOOTIF"
  ip link set dev "$SVC_BOOTIF" down
}

root_needs_network() {
  # A root that is streamed: dm-verity and an overlay hide the device.
  [ ! -e /sys/block/nbd0/pid ] || return 0
  for session in /sys/class/iscsi_session/*; do
    if [ -e "$session" ]; then
      return 0
    fi
  done
  while read -r root_source root_directory root_type _; do
    case $root_directory:$root_source in
      /sysroot:/dev/nbd* | /sysroot/*:/dev/nbd*) return 0 ;;
      /sysroot:* | /sysroot/*:*) ;;
      *) continue ;;
    esac
    case $root_type in
      nfs | nfs4 | cifs | smb3 | ceph | fuse.* | lustre | beegfs | gpfs | glusterfs | 9p | afs | orangefs)
        return 0
        ;;
    esac
  done < /proc/mounts
  return 1
}
