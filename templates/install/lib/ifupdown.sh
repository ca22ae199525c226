# The file of ifupdown (debian). Bonds, bridges and VLANs are made with ip, so that no further package is needed;
# what they lie on makes them, as their order matters.

ifupdown_files() {
  ifupdown_text | image_place /etc/network/interfaces 644
}

ifupdown_text() {
  printf 'source-directory /etc/network/interfaces.d\n\nauto lo\niface lo inet loopback\n'
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
  ifupdown_links
}

ifupdown_static() {
  printf 'iface %s inet static\n    address %s/%s\n' "$ifupdown_name" "$IF_ADDRESS" "$IF_PREFIXLEN"
  given '    gateway %s\n' "$IF_GATEWAY"
  given '    dns-nameservers %s\n' "$IF_NAMESERVER"
  given '    dns-search %s\n' "$IF_DOMAIN"
}

ifupdown_dhcp() {
  printf 'iface %s inet dhcp\n' "$ifupdown_name"
  # Behind the default route.
  if [ -z "$IF_DEFAULT" ]; then
    printf '    metric 1000\n'
  fi
}

ifupdown_links() {
  case $IF_KIND in
    bond | bridge) given '    hwaddress %s\n' "$IF_MAC" ;;
  esac
  case $IF_MASTER_KIND in
    bond) ifupdown_member "bond mode $IF_MASTER_MODE miimon 100" ;;
    bridge) ifupdown_member bridge ;;
  esac
  for vlan in $(related "$_VLANS" "$IF_NAME"); do
    # shellcheck disable=SC2016 # ifupdown knows $IFACE
    printf '    up ip link add link $IFACE name %s type vlan id %s || true\n' "${vlan%>*}" "${vlan#*>}"
  done
}

ifupdown_member() {
  printf '    pre-up ip link add %s type %s || true\n' "$IF_MASTER" "$1"
  # shellcheck disable=SC2016 # ifupdown knows $IFACE
  printf '    pre-up ip link set $IFACE down\n    pre-up ip link set $IFACE master %s\n' "$IF_MASTER"
}
