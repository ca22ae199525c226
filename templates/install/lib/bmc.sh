# Sets up the node's BMC from inside, through its system interface.

bmc_setup() {
  for bmc_program in ipmitool od; do
    if ! program "$bmc_program" >/dev/null; then
      complain "$bmc_program is not in this initramfs"
      return 1
    fi
  done
  bmc_modules
  if ! [ -e /dev/ipmi0 ] && ! [ -e /dev/ipmi/0 ] && ! [ -e /dev/ipmidev/0 ]; then
    complain 'no BMC was found: /dev/ipmi0 is missing'
    return 1
  fi
  bmc_user && bmc_other_users && bmc_network
}

bmc_modules() {
  if program modprobe >/dev/null; then
    for bmc_module in ipmi_devintf ipmi_si; do
      modprobe "$bmc_module" 2>/dev/null || log "no kernel module $bmc_module, it may be built in"
    done
  fi
}

# bmc WHAT WORDS...: runs one ipmitool command. A failure reports WHAT, never the values.
bmc() {
  bmc_what=$1
  shift
  bmc_run "$@" >/dev/null && return 0
  complain "ipmitool cannot $bmc_what"
  return 1
}

# The command is in a file, because the process list shows arguments. ipmitool splits the line at blanks and
# ends it at a #, even inside quotes, so texts are passed as numbers.
bmc_run() {
  rm -f "$_TMP/ipmitool"
  (umask 077 && printf '%s\n' "$*" > "$_TMP/ipmitool") || return 1
  ipmitool -I open -c exec "$_TMP/ipmitool" </dev/null
  bmc_status=$?
  rm -f "$_TMP/ipmitool"
  return "$bmc_status"
}

# bmc_bytes SIZE TEXT: prints the bytes of a text as numbers, padded with zeros.
bmc_bytes() (
  size=$1
  # shellcheck disable=SC2046 # a list of numbers
  set -- $(bytes "$2")
  while [ $# -lt "$size" ]; do
    set -- "$@" 0
  done
  printf '%s' "$*"
)

bmc_length() (
  # shellcheck disable=SC2046 # a list of numbers
  set -- $(bytes "$1")
  printf '%s' "$#"
)

# Prints the users of the BMC, one per line: slot, comma, name, comma, rights.
bmc_users() {
  bmc_run user list "$BMC_MGMTCHANNEL" 2>/dev/null
}

bmc_user() {
  if [ -z "$BMC_USERNAME" ] || [ -z "$BMC_PASSWORD" ]; then
    complain 'the BMC set-up has no user name, or no password'
    return 1
  fi
  if [ "$(bmc_length "$BMC_USERNAME")" -gt 16 ]; then
    complain 'the BMC user name is longer than 16 characters'
    return 1
  fi
  # IPMI 2.0 stores up to 20 bytes, and must be asked to store more than 16.
  bmc_size=16
  bmc_slot=$BMC_USERID
  if [ "$(bmc_length "$BMC_PASSWORD")" -gt 16 ]; then
    bmc_size=20
    bmc_slot=$((BMC_USERID + 128))
  fi
  if [ "$(bmc_length "$BMC_PASSWORD")" -gt 20 ]; then
    complain 'the BMC password is longer than 20 characters'
    return 1
  fi
  bmc_name || return 1
  bmc 'set the password' raw 6 71 "$bmc_slot" 2 "$(bmc_bytes "$bmc_size" "$BMC_PASSWORD")" &&
    bmc 'set the privilege' user priv "$BMC_USERID" 4 "$BMC_MGMTCHANNEL" &&
    bmc 'open the channel to the user' channel setaccess "$BMC_MGMTCHANNEL" "$BMC_USERID" callin=on ipmi=on \
      link=on privilege=4 &&
    bmc 'enable the user' user enable "$BMC_USERID"
}

# Some BMCs refuse a name that is taken, even by the same slot. A name of another slot can be used only if
# other users are deleted.
bmc_name() {
  bmc_users > "$_TMP/bmc_users"
  bmc_taken=''
  while IFS=, read -r bmc_id bmc_name _; do
    case $BMC_UNMANAGED:$bmc_id:$bmc_name in
      *:"$BMC_USERID:$BMC_USERNAME") return 0 ;;
      delete:[2-9]":$BMC_USERNAME" | delete:[1-9][0-9]":$BMC_USERNAME") bmc_other_user "$bmc_id" || return 1 ;;
      *:[1-9]":$BMC_USERNAME" | *:[1-9][0-9]":$BMC_USERNAME") bmc_taken=$bmc_id ;;
    esac
  done < "$_TMP/bmc_users"
  bmc "set the user name${bmc_taken:+, which user $bmc_taken has}" raw 6 69 "$BMC_USERID" \
    "$(bmc_bytes 16 "$BMC_USERNAME")"
}

# Keeps, disables or deletes the users that svcd does not manage. User 1 is the BMC's anonymous one.
bmc_other_users() {
  case $BMC_UNMANAGED in
    disable | delete) ;;
    *) return 0 ;;
  esac
  if ! bmc_users > "$_TMP/bmc_users"; then
    complain 'ipmitool cannot list the users'
    return 1
  fi
  while IFS=, read -r bmc_id bmc_name _; do
    case $bmc_id in
      '' | *[!0-9]* | 0 | 1 | "$BMC_USERID") continue ;;
    esac
    # Some BMCs refuse commands about an empty slot.
    case $bmc_name in
      '' | '(Empty User)') bmc_run user disable "$bmc_id" >/dev/null 2>&1 || : ;;
      *) bmc_other_user "$bmc_id" || return 1 ;;
    esac
  done < "$_TMP/bmc_users"
}

bmc_other_user() {
  bmc "disable user $1" user disable "$1" || return 1
  if [ "$BMC_UNMANAGED" = delete ]; then
    bmc "clear the name of user $1" raw 6 69 "$1" "$(bmc_bytes 16 '')"
  fi
}

bmc_network() {
  if [ -n "$BMC_NTP" ]; then
    log "IPMI has no command for time servers: the BMC is not told of $(word "$BMC_NTP")"
  fi
  case $BMC_VLAN in
    '') ;;
    off | [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-3][0-9][0-9][0-9] | 40[0-8][0-9] | 409[0-4])
      bmc 'set the VLAN' lan set "$BMC_NETCHANNEL" vlan id "$BMC_VLAN" || return 1
      ;;
    *)
      complain 'vlan= in the options of the BMC interface is neither off nor 1 to 4094'
      return 1
      ;;
  esac
  if [ -z "$BMC_ADDRESS" ]; then
    log 'the node has no BMC interface with an address: the network of the BMC stays as it is'
    return 0
  fi
  bmc 'set a static address' lan set "$BMC_NETCHANNEL" ipsrc static &&
    bmc 'set the address' lan set "$BMC_NETCHANNEL" ipaddr "$(word "$BMC_ADDRESS")" &&
    bmc 'set the netmask' lan set "$BMC_NETCHANNEL" netmask "$(word "$BMC_NETMASK")" || return 1
  if [ -n "$BMC_GATEWAY" ]; then
    bmc 'set the gateway' lan set "$BMC_NETCHANNEL" defgw ipaddr "$(word "$BMC_GATEWAY")"
  fi
}
