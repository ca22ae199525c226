# The network files of the image: host name, hosts, resolver, time, and the interfaces in the manner of the
# distribution. An interface is matched by its MAC where that is known, as its name may differ in the image.

# Called by each_interface once the IF_ variables of one interface are set.
interface_ready() {
  IF_NAME=$(word "$IF_NAME" | tr '/' _)
  IF_NETWORK=$(word "$IF_NETWORK")
  IF_ADDRESS=$(word "$IF_ADDRESS")
  IF_NETMASK=$(word "$IF_NETMASK")
  IF_GATEWAY=$(word "$IF_GATEWAY")
  IF_NAMESERVER=$(word "$IF_NAMESERVER")
  IF_DOMAIN=$(word "$IF_DOMAIN")
  IF_MAC=$(word "$IF_MAC")
  # The kernel's name for it: BOOTIF is a name of ours alone.
  IF_DEVICE=$IF_NAME
  if [ -n "$IF_PROVISION" ]; then
    IF_MAC=${IF_MAC:-$(word "${SVC_MAC:-}")}
    if [ "$IF_NAME" = BOOTIF ]; then
      IF_DEVICE=$(word "$_BOOTIF")
    fi
  fi
  case $IF_NAME in
    ib*) IF_TYPE=infiniband ;;
    *) IF_TYPE=ethernet ;;
  esac
  IF_MTU=''
  set -f
  # shellcheck disable=SC2086 # options are words
  for option in $IF_OPTIONS; do
    case $option in
      mtu=*[!0-9]* | mtu=) ;;
      mtu=*) IF_MTU=${option#mtu=} ;;
    esac
  done
  set +f
  # One default route: through the interface chosen by survey_interface, where one was.
  IF_DEFAULT=''
  case $_ROUTE_INTERFACE in
    '' | "$IF_NAME") IF_DEFAULT=yes ;;
    *) IF_GATEWAY='' ;;
  esac
}

# A first look at all interfaces: the default route, name servers, search list, time server.
survey() {
  _ROUTE_INTERFACE=''
  _NAMESERVERS=''
  _SEARCH=$(word "$SVC_DOMAIN")
  _NTP=$SVC_NTP_SERVER
  each_interface survey_interface || return 1
  # shellcheck disable=SC2086 # lists of words
  {
    _NAMESERVERS=$(unique $_NAMESERVERS)
    _SEARCH=$(unique $_SEARCH)
  }
}

survey_interface() {
  if [ -n "$IF_PROVISION" ]; then
    _NAMESERVERS="$IF_NAMESERVER $_NAMESERVERS"
    _NTP=${IF_NTP:-$_NTP}
    # With DHCP the route comes from its server.
    if [ -z "$IF_ADDRESS" ] || [ -n "$IF_GATEWAY" ]; then
      _ROUTE_INTERFACE=$IF_NAME
    fi
  else
    _NAMESERVERS="$_NAMESERVERS $IF_NAMESERVER"
    if [ -z "$_ROUTE_INTERFACE" ] && [ -n "$IF_ADDRESS" ] && [ -n "$IF_GATEWAY" ]; then
      _ROUTE_INTERFACE=$IF_NAME
    fi
  fi
  _SEARCH="$_SEARCH $IF_DOMAIN"
}

network() {
  _ROUTE_INTERFACE=''
  survey || return 1
  printf '%s\n' "$(word "$_HOSTNAME")" | image_place /etc/hostname 644 || return 1
  hosts_lines | image_block /etc/hosts || return 1
  if [ -n "$_NAMESERVERS" ]; then
    resolver_lines | image_place /etc/resolv.conf 644 || return 1
  fi
  time_servers "$_NTP" || return 1
  network_kind=$(network_system)
  log "network files for $network_kind"
  case $network_kind in
    NetworkManager) each_interface manager_interface ;;
    netplan) netplan_file ;;
    networkd) networkd_files ;;
    ifupdown) ifupdown_files ;;
  esac
}

# What reads the network files: by the distribution, and by what the image holds where that leaves a choice.
network_system() (
  case $(printf '%s' "$SVC_DISTRIBUTION" | tr '[:upper:]' '[:lower:]') in
    redhat | rhel | centos | rocky | alma* | fedora | opensuse* | suse | sles) echo NetworkManager && exit ;;
    ubuntu) echo netplan && exit ;;
  esac
  if image_program ifup; then
    echo ifupdown
  elif [ "$SVC_DISTRIBUTION" != debian ] && image_program NetworkManager; then
    echo NetworkManager
  elif [ "$SVC_DISTRIBUTION" != debian ] && image_program netplan; then
    echo netplan
  else
    echo networkd
  fi
)

hosts_lines() {
  if ! [ -e "$_SYSTEMROOT/etc/hosts" ]; then
    printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n'
  fi
  each_interface hosts_interface
}

hosts_interface() {
  hosts_address=$IF_ADDRESS
  if [ -z "$hosts_address" ] && [ -n "$IF_PROVISION" ]; then
    hosts_address=$(interface_address "$IF_DEVICE")
  fi
  if [ -z "$hosts_address" ]; then
    return 0
  fi
  if [ -n "$IF_PROVISION" ]; then
    # shellcheck disable=SC2046 # a list of words
    printf '%s %s\n' "$hosts_address" "$(unique $(word "$_HOSTNAME") $(word "$SVC_NODE"))"
  else
    printf '%s %s.%s\n' "$hosts_address" "$(word "$SVC_NODE")" "$IF_NETWORK"
  fi
}

resolver_lines() {
  if [ -n "$_SEARCH" ]; then
    printf 'search %s\n' "$_SEARCH"
  fi
  for server in $_NAMESERVERS; do
    printf 'nameserver %s\n' "$server"
  done
}
