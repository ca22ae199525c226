# The network commands of a kickstart, from the node's interfaces and their options.

kickstart_network() {
  survey || return 1
  kickstart_bridges=''
  each_interface kickstart_bridge || return 1
  each_interface kickstart_interface > "$SVC_NETWORK"
}

kickstart_bridge() {
  if [ "$IF_KIND" = bridge ]; then
    kickstart_bridges="$kickstart_bridges $IF_NAME"
  fi
}

kickstart_interface() {
  case $IF_KIND:$IF_MASTER:" $kickstart_bridges " in
    further:*) return 0 ;;
    ethernet::* | infiniband::* | bond::* | bridge::*) ;;
    vlan::*" $IF_LINK "*) kickstart_cannot || return 1 ;;
    vlan::*) ;;
    # The command of its bond or bridge names it.
    ethernet:* | infiniband:*) return 0 ;;
    *) kickstart_cannot || return 1 ;;
  esac
  # Another interface's command names it already.
  if [ "$IF_METHOD:$IF_MTU" = none: ]; then
    case " $_LOWER " in
      *" $IF_NAME "*) return 0 ;;
    esac
  fi
  case $IF_KIND in
    bond) kickstart_stack bondslaves && printf ' --bondopts=mode=%s,miimon=100' "$IF_MODE" ;;
    bridge) kickstart_stack bridgeslaves && printf ' --bridgeopts=stp=no' ;;
    vlan)
      kickstart_card=$(kickstart_device "$IF_LINK")
      printf 'network --device=%s --vlanid=%s --interfacename=%s' "$kickstart_card" "$IF_VLAN" "$IF_NAME"
      ;;
    *) printf 'network --device=%s' "${IF_MAC:-${IF_PROVISION:+bootif}}" && given '%s' "$(kickstart_name)" ;;
  esac
  if [ -n "$(related "$_FURTHER$_ROUTES" "$IF_NAME")$IF_METRIC" ]; then
    log "warning: a kickstart tells no metric, no further address and no static route of interface $IF_NAME" >&2
  fi
  printf ' --onboot=yes'
  if [ -n "$IF_PROVISION" ]; then
    printf ' --activate'
  fi
  given ' --mtu=%s' "$IF_MTU"
  case $IF_METHOD in
    static)
      printf ' --bootproto=static --ip=%s --netmask=%s' "$IF_ADDRESS" "$(word "$IF_NETMASK")"
      given ' --gateway=%s' "$IF_GATEWAY"
      given ' --nameserver=%s' "$(printf '%s' "$IF_NAMESERVER" | tr ' ' ',')"
      ;;
    dhcp) printf ' --bootproto=dhcp' ;;
    none) printf ' --noipv4 --noipv6' ;;
  esac
  if [ -z "$IF_DEFAULT" ]; then
    printf ' --nodefroute'
  fi
  printf '\n'
}

# Prints the name of a card with an unknown MAC that the node was not booted over.
kickstart_name() {
  if [ -z "$IF_MAC$IF_PROVISION" ]; then
    printf '%s' "$IF_DEVICE"
  fi
}

kickstart_stack() {
  kickstart_members=''
  for member in $IF_MEMBERS; do
    kickstart_members="$kickstart_members${kickstart_members:+,}$(kickstart_device "$member")"
  done
  printf 'network --device=%s --%s=%s' "$IF_NAME" "$1" "$kickstart_members"
}

# Prints the kernel's name for svcd's card $1; the installed system will use the same name.
kickstart_device() {
  kickstart_mac=$(related "$_MACS" "$1")
  if [ -n "$kickstart_mac" ]; then
    for kickstart_card in /sys/class/net/*; do
      if [ -e "$kickstart_card/device" ] && [ "$(cat "$kickstart_card/address")" = "$kickstart_mac" ]; then
        printf '%s' "${kickstart_card##*/}"
        return
      fi
    done
  fi
  printf '%s' "$1"
}

kickstart_cannot() {
  complain "a kickstart cannot say what interface $IF_NAME is: $(json_string "$IF_OPTIONS")" \
    "${IF_MASTER:+as a member of $IF_MASTER}"
  return 1
}
