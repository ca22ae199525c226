# One file for netplan (ubuntu).

netplan_file() {
  {
    printf 'network:\n  version: 2\n  ethernets:\n'
    each_interface netplan_interface
  } | image_place /etc/netplan/60-svc.yaml 600
}

netplan_interface() {
  if [ -n "$IF_MAC" ]; then
    printf '    "%s":\n      match:\n        macaddress: "%s"\n' "$IF_NAME" "$IF_MAC"
  else
    printf '    "%s":\n' "$IF_DEVICE"
  fi
  if [ -n "$IF_MTU" ]; then
    printf '      mtu: %s\n' "$IF_MTU"
  fi
  if [ -z "$IF_ADDRESS" ]; then
    # The lease is bound to the MAC, not to an identifier that a fresh image makes up.
    printf '      dhcp4: true\n      dhcp-identifier: mac\n'
    if [ -z "$IF_DEFAULT" ]; then
      printf '      dhcp4-overrides:\n        use-routes: false\n'
    fi
    return 0
  fi
  printf '      dhcp4: false\n      addresses:\n        - "%s/%s"\n' "$IF_ADDRESS" "$IF_PREFIXLEN"
  if [ -n "$IF_GATEWAY" ]; then
    printf '      routes:\n        - to: "0.0.0.0/0"\n          via: "%s"\n' "$IF_GATEWAY"
  fi
  if [ -n "$IF_NAMESERVER$IF_DOMAIN" ]; then
    printf '      nameservers:\n'
  fi
  if [ -n "$IF_NAMESERVER" ]; then
    printf '        addresses:\n          - "%s"\n' "$IF_NAMESERVER"
  fi
  if [ -n "$IF_DOMAIN" ]; then
    printf '        search:\n          - "%s"\n' "$IF_DOMAIN"
  fi
}
