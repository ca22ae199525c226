# Prepares an interface for the network files: its values as words, its options, and the interfaces on top of
# it. Options are words: mtu=N, defaultroute=yes|no, dhcp=yes|no, vlan=ID link=INTERFACE, bond=INTERFACE,...
# mode=MODE, bridge=INTERFACE,... metric=N, and on=INTERFACE for another address of that interface.

# each_interface calls this after it has set the IF_ variables of an entry.
interface_ready() {
  # Each $( ) is a process, and most values are words already.
  case $IF_NAME$IF_NETWORK$IF_ADDRESS$IF_GATEWAY$IF_DOMAIN$IF_MAC in
    *[!A-Za-z0-9._:%-]*)
      IF_NAME=$(word "$IF_NAME" | tr '/' _)
      IF_NETWORK=$(word "$IF_NETWORK")
      IF_ADDRESS=$(word "$IF_ADDRESS")
      IF_GATEWAY=$(word "$IF_GATEWAY")
      IF_DOMAIN=$(word "$IF_DOMAIN")
      IF_MAC=$(word "$IF_MAC")
      ;;
  esac
  # shellcheck disable=SC2086 # a list of words
  IF_NAMESERVER=$(unique $IF_NAMESERVER)
  # The kernel's name; only svcd says BOOTIF. It may be a member of the bond with the node's MAC.
  IF_DEVICE=$IF_NAME
  if [ "$IF_NAME" = BOOTIF ]; then
    IF_DEVICE=$(word "$_BOOTIF")
  fi
  if [ -n "$IF_PROVISION" ] || [ "$IF_NAME" = BOOTIF ]; then
    IF_MAC=${IF_MAC:-$_BOOT_MAC}
  fi
  interface_options
  interface_kind
  interface_master
  if [ -n "$IF_MASTER" ] || [ -z "$IF_NETWORK$IF_PROVISION" ] || { [ -n "$IF_ON" ] && [ -z "$IF_ADDRESS" ]; }; then
    IF_METHOD=none IF_ADDRESS='' IF_GATEWAY='' IF_NAMESERVER='' IF_DOMAIN=''
  elif [ -n "$IF_ADDRESS" ] && [ "$IF_DHCP" != yes ]; then
    IF_METHOD=static
  else
    # The route comes from the DHCP server.
    IF_METHOD=dhcp IF_ADDRESS='' IF_GATEWAY=''
  fi
  # The interface that the survey chose, if any, has the default route. Others request it with a metric, which
  # decides.
  IF_DEFAULT=''
  case ${IF_ON:+no}$IF_ROUTE:${IF_METRIC:+metric}:$_ROUTE_INTERFACE in
    no*) IF_GATEWAY='' ;;
    yes:metric:* | *: | *:"$IF_NAME") IF_DEFAULT=yes ;;
    *) IF_GATEWAY='' ;;
  esac
}

# Prints a format for each static route of the interface, with destination and gateway.
interface_routes() {
  for route in $(related "$_ROUTES" "$IF_NAME"); do
    # shellcheck disable=SC2059 # the format is ours
    printf "$1" "${route%>*}" "${route#*>}"
  done
}

interface_options() {
  IF_MTU='' IF_VLAN='' IF_LINK='' IF_BOND='' IF_BRIDGE='' IF_MODE=active-backup IF_ROUTE='' IF_DHCP='' IF_UNKNOWN='' IF_METRIC='' IF_ON=''
  set -f
  # shellcheck disable=SC2086 # options are words
  for option in $IF_OPTIONS; do
    option_value=${option#*=}
    case $option in
      *[!A-Za-z0-9._:,=-]* | *= | mtu=*[!0-9]* | vlan=*[!0-9]* | vlan=?????* | metric=*[!0-9]* | metric=??????????* | on="$IF_NAME")
        IF_UNKNOWN="$IF_UNKNOWN $option"
        ;;
      mtu=*) IF_MTU=$option_value ;;
      vlan=409[5-9] | vlan=4[1-9]?? | vlan=[5-9]??? | vlan=0*) IF_UNKNOWN="$IF_UNKNOWN $option" ;;
      vlan=*) IF_VLAN=$option_value ;;
      link=*) IF_LINK=$option_value ;;
      metric=*) IF_METRIC=$option_value ;;
      on=*) IF_ON=$option_value ;;
      bond=*) IF_BOND=$(printf '%s' "$option_value" | tr ',' ' ') ;;
      bridge=*) IF_BRIDGE=$(printf '%s' "$option_value" | tr ',' ' ') ;;
      mode=balance-rr | mode=active-backup | mode=balance-xor | mode=broadcast | mode=802.3ad | \
        mode=balance-tlb | mode=balance-alb) IF_MODE=$option_value ;;
      defaultroute=yes | defaultroute=no) IF_ROUTE=$option_value ;;
      dhcp=yes | dhcp=no) IF_DHCP=$option_value ;;
      *) IF_UNKNOWN="$IF_UNKNOWN $option" ;;
    esac
  done
  # A further address has no options of its own: those given beside on= are named.
  if [ -n "$IF_ON" ]; then
    IF_DHCP='' IF_UNKNOWN=''
    for option in $IF_OPTIONS; do
      case $option in
        "on=$IF_ON" | dhcp=no | defaultroute=no) ;;
        *) IF_UNKNOWN="$IF_UNKNOWN $option" ;;
      esac
    done
  fi
  set +f
}

# Finds the kind of the interface. A VLAN has the address of its link. The address of an InfiniBand port is no
# MAC: the port is found by its GUID, the last 8 bytes, and its name is written.
interface_kind() {
  IF_MEMBERS='' IF_GUID=''
  case $IF_MAC in
    ??:??:??:??:??:??:??:??) IF_GUID=$IF_MAC IF_MAC='' ;;
  esac
  IF_LINK=${IF_LINK:-${IF_NAME%.*}}
  if [ -n "$IF_VLAN" ] && [ "$IF_LINK" = "$IF_NAME" ]; then
    IF_UNKNOWN="$IF_UNKNOWN vlan=$IF_VLAN without link" IF_VLAN=''
  fi
  if [ -n "$IF_ON" ]; then
    IF_KIND=further
  elif [ -n "$IF_VLAN" ]; then
    IF_KIND=vlan IF_MAC=''
  elif [ -n "$IF_BOND" ]; then
    IF_KIND=bond IF_MEMBERS=$IF_BOND
  elif [ -n "$IF_BRIDGE" ]; then
    IF_KIND=bridge IF_MEMBERS=$IF_BRIDGE
  else
    case $IF_GUID:$IF_DEVICE in
      :ib*) IF_KIND=infiniband IF_MAC='' ;;
      :*) IF_KIND=ethernet ;;
      *) IF_KIND=infiniband && interface_port ;;
    esac
  fi
}

interface_port() {
  for port in /sys/class/net/*; do
    port_address=''
    read -r port_address 2>/dev/null < "$port/address"
    case $port_address in
      ??:??:??:??:??:??:??:??:??:??:??:??:"$IF_GUID") IF_DEVICE=${port##*/} ;;
    esac
  done
}

# Prints the bond or bridge of a member, as found by interface_relations.
interface_master() {
  IF_MASTER='' IF_MASTER_KIND='' IF_MASTER_MODE=''
  for related in $(related "$_MASTERS" "$IF_NAME"); do
    IF_MASTER=${related%%>*}
    IF_MASTER_MODE=${related##*>}
    IF_MASTER_KIND=${related#*>}
    IF_MASTER_KIND=${IF_MASTER_KIND%>*}
  done
}

# Prints the values of a name in a list of NAME>VALUE. No word holds a ">".
related() {
  for pair in $1; do
    case $pair in
      "$2>"*) printf '%s\n' "${pair#*>}" ;;
    esac
  done
}

# Finds out which interfaces lie on which.
interface_relations() {
  _ROUTE_INTERFACE='' _ENTRIES='' _LOWER='' _MASTERS='' _VLANS='' _MACS='' _OTHERS='' _ROUTES='' _FURTHER=''
  # A kickstart does not know the card it was booted over: the one with the node's MAC.
  _BOOT_MAC=$(word "${SVC_MAC:-}")
  each_interface interface_related || return 1
  if [ -n "$_BOOT_MAC" ] && [ -z "$(related "$_MACS" BOOTIF)" ]; then
    _MACS="$_MACS BOOTIF>$_BOOT_MAC"
  fi
  for lower in $_LOWER; do
    case " $_ENTRIES $_OTHERS " in
      *" $lower "*) ;;
      *) _OTHERS="$_OTHERS $lower" ;;
    esac
  done
}

interface_related() {
  _ENTRIES="$_ENTRIES $IF_NAME"
  if [ -n "$IF_PROVISION" ]; then
    _BOOT_MAC=${_BOOT_MAC:-$IF_MAC}
  fi
  if [ "$IF_KIND:${IF_MAC:+known}" = ethernet:known ]; then
    _MACS="$_MACS $IF_NAME>$IF_MAC"
  fi
  if [ "$IF_METHOD" != none ]; then
    for route in $IF_ROUTES; do
      _ROUTES="$_ROUTES ${IF_ON:-$IF_NAME}>$(word "${route%>*}")>$(word "${route#*>}")"
    done
  fi
  if [ "$IF_KIND:$IF_METHOD" = further:static ]; then
    _FURTHER="$_FURTHER $IF_ON>$IF_ADDRESS/$IF_PREFIXLEN"
  fi
  for member in $IF_MEMBERS; do
    _LOWER="$_LOWER $member"
    _MASTERS="$_MASTERS $member>$IF_NAME>$IF_KIND>$IF_MODE"
  done
  if [ "$IF_KIND" = vlan ]; then
    _LOWER="$_LOWER $IF_LINK"
    _VLANS="$_VLANS $IF_LINK>$IF_NAME>$IF_VLAN"
  fi
  if [ -n "$IF_UNKNOWN" ]; then
    log "warning: options of interface $IF_NAME are not understood: $(json_string "${IF_UNKNOWN# }")"
  fi
}

# Calls a function for interfaces below a bond, bridge or VLAN that have no entry of their own.
other_interfaces() {
  for other in $_OTHERS; do
    IF_NAME=$other
    IF_NETWORK='' IF_ADDRESS='' IF_PREFIXLEN='' IF_GATEWAY='' IF_NAMESERVER='' IF_DOMAIN='' IF_NTP='' IF_MAC=''
    IF_OPTIONS='' IF_PROVISION='' IF_ROUTES=''
    interface_ready
    "$1" || return 1
  done
}
