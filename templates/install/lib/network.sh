# The image's network files: host name, hosts, resolver, time, and interfaces as the distribution has them. A
# card is found by its MAC if known, because its name may differ in the image.

# Collects default route, name servers, search list and time server from all interfaces.
survey() {
  interface_relations || return 1
  survey_route='' survey_rank=0 _NAMESERVERS=''
  _SEARCH=$(word "$SVC_DOMAIN")
  _NTP=$SVC_NTP_SERVER
  each_interface survey_interface || return 1
  _ROUTE_INTERFACE=$survey_route
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
  else
    _NAMESERVERS="$_NAMESERVERS $IF_NAMESERVER"
  fi
  _SEARCH="$_SEARCH $IF_DOMAIN"
  case $IF_ROUTE:$IF_METHOD:$IF_GATEWAY:$IF_PROVISION in
    yes:static:?*:* | yes:dhcp:*) route_rank=3 ;;
    :static:?*:yes | :dhcp::yes) route_rank=2 ;;
    :static:?*:) route_rank=1 ;;
    *) route_rank=0 ;;
  esac
  if [ "$route_rank" -gt "$survey_rank" ]; then
    survey_rank=$route_rank
    survey_route=$IF_NAME
  fi
}

network() {
  survey || return 1
  hosts_forget || return 1
  printf '%s\n' "$(word "$_HOSTNAME")" | image_place /etc/hostname 644 || return 1
  hosts_lines | image_block /etc/hosts || return 1
  if [ -n "$_NAMESERVERS" ]; then
    resolver_lines | image_place /etc/resolv.conf 644 || return 1
  fi
  time_servers "$_NTP" || return 1
  network_kind=$(network_system)
  log "network files for $network_kind"
  ifupdown_clear
  case $network_kind in
    NetworkManager) manager_files ;;
    netplan) netplan_file ;;
    networkd) networkd_files ;;
    ifupdown) ifupdown_files ;;
  esac
}

# Prints the system that will read the network files: the distribution decides, or else the image.
network_system() (
  case $(printf '%s' "$SVC_DISTRIBUTION" | tr '[:upper:]' '[:lower:]') in
    redhat | rhel | centos | rocky | alma* | fedora | opensuse* | suse | sles) echo NetworkManager && exit ;;
    ubuntu) echo netplan && exit ;;
  esac
  if image_program ifup; then
    echo ifupdown
  elif image_program NetworkManager; then
    echo NetworkManager
  elif [ "$SVC_DISTRIBUTION" != debian ] && image_program netplan; then
    echo netplan
  else
    echo networkd
  fi
)

# Removes the files in the image's directory $1 whose names begin with $2: an image taken from a node holds
# the files of that node.
network_clear() {
  clear_path=$(image_path "$1/$2") || return 0
  for clear_file in "$clear_path"*; do
    if ! rm -f "$clear_file"; then
      complain "cannot remove an old network file in $1 of the image"
      return 1
    fi
  done
}

# Prints a line of a network file, a format with one value, unless the value is empty.
given() {
  if [ -n "$2" ]; then
    # shellcheck disable=SC2059 # the format is ours
    printf "$1" "$2"
  fi
}

# Turns lines of /etc/hosts with the image's name on another machine into comments.
hosts_forget() {
  hosts_file=$(image_file /etc/hosts) || return 0
  hosts_old=''
  if hosts_name=$(image_file /etc/hostname); then
    hosts_old=$(sed -n '/^[[:blank:]]*[^#[:blank:]]/{s/[[:blank:]]//g;p;q;}' "$hosts_name")
  fi
  case $hosts_old in
    *[!A-Za-z0-9.-]* | localhost | localhost.*) hosts_old='' ;;
  esac
  hosts_kept "${hosts_old%%.*}" < "$hosts_file" | image_place "${hosts_file#"$_SYSTEMROOT"}" 644 || return 1
  if grep -q '^# svc: of another' "$hosts_file"; then
    log "/etc/hosts of the image names another machine${hosts_old:+, $hosts_old}: these lines are comments now"
  fi
}

# Copies standard input without the name $1. Debian gives a machine's own name the address 127.0.1.1.
hosts_kept() {
  hosts_name="[[:blank:]]${1:-=}\\(\\.[^[:blank:]#]*\\)\\{0,1\\}\\([[:blank:]#]\\|\$\\)"
  sed -e '/^[[:blank:]]*#/b' -e '/^[^#]*[[:blank:]]localhost\([[:blank:]#]\|$\)/{' -e ':again' \
    -e "s/^\\([^#]*\\)$hosts_name/\\1\\3/" -e 't again' -e b -e '}' \
    -e "/^[^#]*$hosts_name/s/^/# svc: of another machine: /" -e '/^[[:blank:]]*127\.0\.1\.1[[:blank:]]/s/^/# svc: of another machine: /'
}

hosts_lines() {
  if ! hosts_file=$(image_file /etc/hosts) ||
    ! grep -q '^[[:blank:]]*127[0-9.]*[[:blank:]]\(.*[[:blank:]]\)\{0,1\}localhost\([[:blank:]#]\|$\)' "$hosts_file"; then
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
  given 'search %s\n' "$_SEARCH"
  for server in $_NAMESERVERS; do
    printf 'nameserver %s\n' "$server"
  done
}
