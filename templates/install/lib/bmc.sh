# Sets up the node's BMC from inside, through its system interface.

bmc_setup() {
  if ! program ipmitool >/dev/null; then
    complain 'ipmitool is not in this initramfs'
    return 1
  fi
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

# One ipmitool command; what it was (never its values) is the reason when it fails.
bmc() {
  bmc_what=$1
  shift
  ipmitool -I open -- "$@" >/dev/null && return 0
  complain "ipmitool cannot $bmc_what"
  return 1
}

bmc_user() {
  # IPMI 2.0 stores at most 20 bytes, and has to be told when it is more than 16.
  case $BMC_PASSWORD in
    ?????????????????????*)
      complain 'the BMC password is longer than 20 characters'
      return 1
      ;;
    ?????????????????*) set -- 20 ;;
    *) set -- 16 ;;
  esac
  bmc 'set the user name' user set name "$BMC_USERID" "$BMC_USERNAME" &&
    bmc 'set the password' user set password "$BMC_USERID" "$BMC_PASSWORD" "$1" &&
    bmc 'set the privilege' user priv "$BMC_USERID" 4 "$BMC_MGMTCHANNEL" &&
    bmc 'open the channel to the user' channel setaccess "$BMC_MGMTCHANNEL" "$BMC_USERID" callin=on ipmi=on \
      link=on privilege=4 &&
    bmc 'enable the user' user enable "$BMC_USERID"
}

# Users that svcd does not manage: kept, disabled, or deleted; user 1 is the BMC's own anonymous one.
bmc_other_users() {
  case $BMC_UNMANAGED in
    disable | delete) ;;
    *) return 0 ;;
  esac
  for bmc_id in $(ipmitool -I open -- user list "$BMC_MGMTCHANNEL" 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) .*$/\1/p'); do
    if [ "$bmc_id" -le 1 ] || [ "$bmc_id" -eq "$BMC_USERID" ]; then
      continue
    fi
    bmc "disable user $bmc_id" user disable "$bmc_id" || return 1
    if [ "$BMC_UNMANAGED" = delete ]; then
      bmc "clear the name of user $bmc_id" user set name "$bmc_id" '' || return 1
    fi
  done
}

bmc_network() {
  if [ -z "$BMC_ADDRESS" ]; then
    log 'the node has no BMC interface with an address: the network of the BMC stays as it is'
    return 0
  fi
  bmc 'set a static address' lan set "$BMC_NETCHANNEL" ipsrc static &&
    bmc 'set the address' lan set "$BMC_NETCHANNEL" ipaddr "$BMC_ADDRESS" &&
    bmc 'set the netmask' lan set "$BMC_NETCHANNEL" netmask "$BMC_NETMASK" || return 1
  if [ -n "$BMC_GATEWAY" ]; then
    bmc 'set the gateway' lan set "$BMC_NETCHANNEL" defgw ipaddr "$BMC_GATEWAY"
  fi
}
