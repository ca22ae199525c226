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
  # The lease follows the MAC, not an identifier that each new system invents.
  printf '      dhcp4: true\n      dhcp-identifier: mac\n'
  if [ -z "$IF_DEFAULT" ] || [ -n "$IF_METRIC" ]; then
    printf '      dhcp4-overrides:\n'
    given '        route-metric: %s\n' "$IF_METRIC"
    if [ -z "$IF_DEFAULT" ]; then
      printf '        use-routes: false\n'
    fi
  fi
  netplan_routes
}

netplan_static() {
  printf '      dhcp4: false\n'
  netplan_routes
  if [ -n "$IF_NAMESERVER$IF_DOMAIN" ]; then
    printf '      nameservers:\n'
  fi
  netplan_list '        addresses:\n' '          - "%s"\n' "$IF_NAMESERVER"
  given '        search:\n          - "%s"\n' "$IF_DOMAIN"
}

# Prints a heading and the words below it, each in its format; nothing without words.
netplan_list() {
  # shellcheck disable=SC2059 # the formats are ours
  for netplan_word in $3; do
    printf "$1$2" "$netplan_word"
    set -- '' "$2" "$3"
  done
}

netplan_routes() {
  netplan_list '      addresses:\n' '        - "%s"\n' "${IF_ADDRESS:+$IF_ADDRESS/$IF_PREFIXLEN} $(related "$_FURTHER" "$IF_NAME")"
  netplan_metric=${IF_METRIC:+"          metric: $IF_METRIC\n"}
  given '      routes:\n%s\n' "$(
    given "        - to: \"0.0.0.0/0\"\n          via: \"%s\"\n$netplan_metric" "$IF_GATEWAY"
    interface_routes "        - to: \"%s\"\n          via: \"%s\"\n$netplan_metric"
  )"
}
