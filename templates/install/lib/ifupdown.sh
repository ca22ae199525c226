# The file of ifupdown (debian). It knows interfaces by name only, so the boot interface, whose name in the
# image is not known, is named by its MAC.

ifupdown_files() {
  {
    printf 'source-directory /etc/network/interfaces.d\n\nauto lo\niface lo inet loopback\n'
    each_interface ifupdown_interface
  } | image_place /etc/network/interfaces 644 || return 1
  each_interface ifupdown_link
}

ifupdown_name() {
  if [ "$IF_NAME" = BOOTIF ] && [ -n "$IF_MAC" ]; then
    echo bootif
  else
    printf '%s\n' "$IF_DEVICE"
  fi
}

ifupdown_link() {
  if [ "$IF_NAME" = BOOTIF ] && [ -n "$IF_MAC" ]; then
    printf '[Match]\nMACAddress=%s\nType=ether\n\n[Link]\nName=bootif\n' "$IF_MAC" |
      image_place /etc/systemd/network/10-svc-bootif.link 644
  fi
}

ifupdown_interface() {
  printf '\nauto %s\n' "$(ifupdown_name)"
  if [ -n "$IF_ADDRESS" ]; then
    printf 'iface %s inet static\n    address %s/%s\n' "$(ifupdown_name)" "$IF_ADDRESS" "$IF_PREFIXLEN"
    if [ -n "$IF_GATEWAY" ]; then
      printf '    gateway %s\n' "$IF_GATEWAY"
    fi
    if [ -n "$IF_NAMESERVER" ]; then
      printf '    dns-nameservers %s\n' "$IF_NAMESERVER"
    fi
    if [ -n "$IF_DOMAIN" ]; then
      printf '    dns-search %s\n' "$IF_DOMAIN"
    fi
  else
    printf 'iface %s inet dhcp\n' "$(ifupdown_name)"
  fi
  if [ -n "$IF_MTU" ]; then
    printf '    mtu %s\n' "$IF_MTU"
  fi
}
