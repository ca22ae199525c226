# Key files of NetworkManager (redhat, opensuse).

manager_interface() {
  manager_keyfile | image_place "/etc/NetworkManager/system-connections/svc-$IF_NAME.nmconnection" 600
}

manager_keyfile() {
  printf '[connection]\nid=%s\ntype=%s\nautoconnect=true\nautoconnect-priority=100\n' "$IF_NAME" "$IF_TYPE"
  if [ -z "$IF_MAC" ]; then
    printf 'interface-name=%s\n' "$IF_DEVICE"
  fi
  printf '\n[%s]\n' "$IF_TYPE"
  if [ -n "$IF_MAC" ]; then
    printf 'mac-address=%s\n' "$IF_MAC"
  fi
  if [ -n "$IF_MTU" ]; then
    printf 'mtu=%s\n' "$IF_MTU"
  fi
  if [ "$IF_TYPE" = infiniband ]; then
    printf 'transport-mode=datagram\n'
  fi
  printf '\n[ipv4]\n'
  if [ -n "$IF_ADDRESS" ]; then
    printf 'method=manual\naddress1=%s/%s%s\n' "$IF_ADDRESS" "$IF_PREFIXLEN" "${IF_GATEWAY:+,$IF_GATEWAY}"
    if [ -n "$IF_NAMESERVER" ]; then
      printf 'dns=%s;\n' "$IF_NAMESERVER"
    fi
    if [ -n "$IF_DOMAIN" ]; then
      printf 'dns-search=%s;\n' "$IF_DOMAIN"
    fi
  else
    printf 'method=auto\n'
  fi
  if [ -z "$IF_DEFAULT" ]; then
    printf 'never-default=true\n'
  fi
  printf '\n[ipv6]\nmethod=auto\n'
}
