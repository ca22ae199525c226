# One file for netplan (ubuntu).

netplan_file() {
  netplan_text | image_place /etc/netplan/60-svc.yaml 600
}

netplan_text() {
  printf 'network:\n  version: 2\n'
  for netplan_kind in ethernet bond bridge vlan; do
    given "  ${netplan_kind}s:\n%s\n" "$(each_interface netplan_interface)"
  done
}

netplan_interface() {
  case $IF_KIND:$netplan_kind in
    infiniband:ethernet | ethernet:ethernet | bond:bond | bridge:bridge | vlan:vlan) ;;
    *) return 0 ;;
  esac
  printf '    "%s":\n' "$IF_NAME"
  case $IF_KIND in
    ethernet | infiniband) netplan_match ;;
    vlan) printf '      id: %s\n      link: "%s"\n' "$IF_VLAN" "$IF_LINK" ;;
    *)
      printf '      interfaces:\n'
      for member in $IF_MEMBERS; do
        printf '        - "%s"\n' "$member"
      done
      given '      macaddress: "%s"\n' "$IF_MAC"
      ;;
  esac
  case $IF_KIND in
    bond) printf '      parameters:\n        mode: "%s"\n        mii-monitor-interval: 100\n' "$IF_MODE" ;;
    bridge) printf '      parameters:\n        stp: false\n' ;;
  esac
  given '      mtu: %s\n' "$IF_MTU"
  case $IF_METHOD in
    dhcp) netplan_dhcp ;;
    static) netplan_static ;;
    none) printf '      dhcp4: false\n' ;;
  esac
  # A card without a link must not delay the boot, unless the node is provisioned over it.
  if [ -z "$IF_PROVISION" ] || [ "$IF_METHOD" = none ]; then
    printf '      optional: true\n'
  fi
}

netplan_match() {
  if [ -n "$IF_MAC" ]; then
    printf '      match:\n        macaddress: "%s"\n' "$IF_MAC"
  elif [ "$IF_DEVICE" != "$IF_NAME" ]; then
    printf '      match:\n        name: "%s"\n' "$IF_DEVICE"
  fi
}

netplan_dhcp() {
  # The lease belongs to the MAC, not to an identifier that each new system makes up.
  printf '      dhcp4: true\n      dhcp-identifier: mac\n'
  if [ -z "$IF_DEFAULT" ]; then
    printf '      dhcp4-overrides:\n        use-routes: false\n'
  fi
}

netplan_static() {
  printf '      dhcp4: false\n      addresses:\n        - "%s/%s"\n' "$IF_ADDRESS" "$IF_PREFIXLEN"
  given '      routes:\n        - to: "0.0.0.0/0"\n          via: "%s"\n' "$IF_GATEWAY"
  if [ -n "$IF_NAMESERVER$IF_DOMAIN" ]; then
    printf '      nameservers:\n'
  fi
  given '        addresses:\n          - "%s"\n' "$IF_NAMESERVER"
  given '        search:\n          - "%s"\n' "$IF_DOMAIN"
}
