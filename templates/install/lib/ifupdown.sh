# The file of ifupdown (Debian). ip makes bonds, bridges and VLANs, which needs no further package. The
# interfaces below make them in the right order. They stay while a single interface goes down; a hook removes
# them when all do.

_IFUPDOWN_HOOK=/etc/network/if-post-down.d/svc

ifupdown_files() {
  ifupdown_text | image_place /etc/network/interfaces 644 || return 1
  ifupdown_made=''
  each_interface ifupdown_made || return 1
  if [ -n "$ifupdown_made" ]; then
    ifupdown_hook | image_place "$_IFUPDOWN_HOOK" 755
  fi
}

# Removes the hook of another node from which the image was taken.
ifupdown_clear() {
  ifupdown_old=$(image_path "$_IFUPDOWN_HOOK") || return 0
  rm -f "$ifupdown_old"
}

# Lists the interfaces that ip makes, each VLAN before its link.
ifupdown_made() {
  case $IF_KIND in
    vlan) ifupdown_made="$IF_NAME${ifupdown_made:+ }$ifupdown_made" ;;
    bond | bridge) ifupdown_made="$ifupdown_made${ifupdown_made:+ }$IF_NAME" ;;
  esac
}

ifupdown_hook() {
  # shellcheck disable=SC2016 # ifupdown knows $IFACE
  printf '#!/bin/sh\nif [ "$IFACE" = --all ]; then\n'
  for name in $ifupdown_made; do
    printf '  ip link del %s 2>/dev/null\n' "$name"
  done
  printf 'fi\nexit 0\n'
}

ifupdown_text() {
  printf 'source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n'
  for ifupdown_kind in card master vlan; do
    each_interface ifupdown_interface
  done
}

ifupdown_interface() {
  case $IF_KIND:$ifupdown_kind in
    ethernet:card | infiniband:card | bond:master | bridge:master | vlan:vlan) ;;
    *) return 0 ;;
  esac
  ifupdown_name=$IF_DEVICE
  if [ "$IF_KIND" = ethernet ] && [ -n "$IF_MAC" ]; then
    ifupdown_name=$IF_NAME
    printf '\nauto mac/%s=%s\n' "$IF_MAC" "$IF_NAME"
  else
    printf '\nauto %s\n' "$IF_DEVICE"
  fi
  case $IF_METHOD in
    static) ifupdown_static ;;
    dhcp) ifupdown_dhcp ;;
    none) printf 'iface %s inet manual\n' "$ifupdown_name" ;;
  esac
  given '    mtu %s\n' "$IF_MTU"
  if [ "$IF_METHOD" != none ]; then
    ifupdown_more
  fi
  ifupdown_links
}

ifupdown_static() {
  printf 'iface %s inet static\n    address %s/%s\n' "$ifupdown_name" "$IF_ADDRESS" "$IF_PREFIXLEN"
  given '    gateway %s\n' "$IF_GATEWAY"
  given '    metric %s\n' "$IF_METRIC"
  given '    dns-nameservers %s\n' "$IF_NAMESERVER"
  given '    dns-search %s\n' "$IF_DOMAIN"
}

ifupdown_dhcp() {
  printf 'iface %s inet dhcp\n' "$ifupdown_name"
  # The default route of another interface takes precedence.
  if [ -z "$IF_DEFAULT" ]; then
    printf '    metric 1000\n'
  else
    given '    metric %s\n' "$IF_METRIC"
  fi
}

# shellcheck disable=SC2016 # ifupdown knows $IFACE
ifupdown_more() {
  for further in $(related "$_FURTHER" "$IF_NAME"); do
    printf '    up ip address replace %s dev $IFACE\n' "$further"
  done
  interface_routes "    up ip route replace %s via %s dev \$IFACE${IF_METRIC:+ metric $IF_METRIC}\n"
}

# shellcheck disable=SC2016 # ifupdown knows $IFACE
ifupdown_links() {
  case $IF_KIND in
    bond | bridge) given '    hwaddress %s\n' "$IF_MAC" ;;
  esac
  case $IF_MASTER_KIND in
    bond) ifupdown_bond ;;
    bridge) ifupdown_make "$IF_MASTER" bridge ;;
  esac
  if [ -n "$IF_MASTER" ]; then
    printf '    pre-up ip link set $IFACE down\n    pre-up ip link set $IFACE master %s\n' "$IF_MASTER"
  fi
  # A VLAN that cannot be made must not take its link down.
  for vlan in $(related "$_VLANS" "$IF_NAME"); do
    printf '    up test -e /sys/class/net/%s || ip link add link $IFACE name %s type vlan id %s || true\n' \
      "${vlan%>*}" "${vlan%>*}" "${vlan#*>}"
  done
}

ifupdown_make() {
  printf '    pre-up test -e /sys/class/net/%s || ip link add %s type %s\n' "$1" "$1" "$2"
}

# Loading the kernel module makes a bond0, and only a bond without members can change its mode.
ifupdown_bond() {
  ifupdown_make "$IF_MASTER" "bond mode $IF_MASTER_MODE miimon 100 || test -e /sys/class/net/$IF_MASTER"
  printf '    pre-up grep -qs "^%s " /sys/class/net/%s/bonding/mode || ip link set %s type bond mode %s\n' \
    "$IF_MASTER_MODE" "$IF_MASTER" "$IF_MASTER" "$IF_MASTER_MODE"
  printf '    pre-up ip link set %s type bond miimon 100\n' "$IF_MASTER"
}
