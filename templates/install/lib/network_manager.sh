# Key files of NetworkManager (redhat, opensuse).

manager_files() {
  network_clear /etc/NetworkManager/system-connections svc- || return 1
  each_interface manager_interface
}

manager_interface() {
  if [ "$IF_KIND" = further ]; then
    return 0
  fi
  manager_keyfile | image_place "/etc/NetworkManager/system-connections/svc-$IF_NAME.nmconnection" 600
}

manager_keyfile() {
  printf '[connection]\nid=%s\ntype=%s\nautoconnect=true\nautoconnect-priority=100\n' "$IF_NAME" "$IF_KIND"
  if [ -z "$IF_GUID" ] && { [ "$IF_KIND" != ethernet ] || [ -z "$IF_MAC" ]; }; then
    printf 'interface-name=%s\n' "$IF_DEVICE"
  fi
  if [ -n "$IF_MASTER" ]; then
    printf 'master=%s\nslave-type=%s\n' "$IF_MASTER" "$IF_MASTER_KIND"
  fi
  case $IF_KIND in
    infiniband)
      printf '\n[infiniband]\ntransport-mode=datagram\n'
      # NetworkManager only compares the last 8 bytes.
      given 'mac-address=80:00:00:00:fe:80:00:00:00:00:00:00:%s\n' "$IF_GUID"
      ;;
    *) printf '\n[ethernet]\n' ;;
  esac
  given 'mtu=%s\n' "$IF_MTU"
  case $IF_KIND in
    ethernet) given 'mac-address=%s\n' "$IF_MAC" ;;
    bond) given 'cloned-mac-address=%s\n' "$IF_MAC" && printf '\n[bond]\nmode=%s\nmiimon=100\n' "$IF_MODE" ;;
    bridge) given 'cloned-mac-address=%s\n' "$IF_MAC" && printf '\n[bridge]\nstp=false\n' ;;
    vlan) manager_vlan ;;
  esac
  if [ -z "$IF_MASTER" ]; then
    manager_address
  fi
}

# Names the link by its MAC, else by its name. The MAC of a VLAN without a parent names its card.
manager_vlan() {
  manager_mac=$(related "$_MACS" "$IF_LINK")
  given 'mac-address=%s\n' "$manager_mac"
  printf '\n[vlan]\nid=%s\n' "$IF_VLAN"
  if [ -z "$manager_mac" ]; then
    printf 'parent=%s\n' "$IF_LINK"
  fi
}

manager_address() {
  printf '\n[ipv4]\n'
  case $IF_METHOD in
    static)
      printf 'method=manual\naddress1=%s/%s%s\n' "$IF_ADDRESS" "$IF_PREFIXLEN" "${IF_GATEWAY:+,$IF_GATEWAY}"
      given 'dns=%s;\n' "$(printf '%s' "$IF_NAMESERVER" | tr ' ' ';')"
      given 'dns-search=%s;\n' "$IF_DOMAIN"
      ;;
    dhcp)
      printf 'method=auto\n'
      given 'dhcp-client-id=ff:00:00:00:00:00:02:00:00:02:c9:00:%s\n' "$IF_GUID"
      ;;
    none) printf 'method=disabled\n\n[ipv6]\nmethod=ignore\n' && return 0 ;;
  esac
  manager_number=$((0${IF_ADDRESS:+1}))
  for further in $(related "$_FURTHER" "$IF_NAME"); do
    manager_number=$((manager_number + 1))
    printf 'address%s=%s\n' "$manager_number" "$further"
  done
  given 'route-metric=%s\n' "$IF_METRIC"
  manager_number=0
  for route in $(related "$_ROUTES" "$IF_NAME"); do
    manager_number=$((manager_number + 1))
    printf 'route%s=%s,%s%s\n' "$manager_number" "${route%>*}" "${route#*>}" "${IF_METRIC:+,$IF_METRIC}"
  done
  if [ -z "$IF_DEFAULT" ]; then
    printf 'never-default=true\n'
  fi
  printf '\n[ipv6]\nmethod=auto\n'
}
