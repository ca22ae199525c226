# Files that must differ between nodes: those of the image are removed before the node's are written.

# Calls $1 with the pattern $2 and each matching file of the image. Only the last part has wildcards.
each_match() {
  match_directory=$_SYSTEMROOT
  if [ -n "${2%/*}" ]; then
    match_directory=$(image_path "${2%/*}" whole) || return 0
  fi
  match_status=0
  IFS=''
  # shellcheck disable=SC2231 # the pattern is to be expanded
  for match_file in "$match_directory"/${2##*/}; do
    "$1" "$2" "$match_file" || match_status=1
  done
  unset IFS
  return "$match_status"
}

# Links stay, because their target has a name of its own.
forget_identity() {
  for identity_pattern; do
    each_match forget_file "$identity_pattern" || return 1
  done
}

# systemd writes a new machine id into an empty file. A missing file, or the word uninitialized, means the
# very first boot: systemd would preset all units as the distribution does.
forget_file() {
  if ! [ -f "$2" ] || [ -L "$2" ]; then
    return 0
  fi
  case $1 in
    /etc/machine-id)
      read -r identity_word < "$2"
      [ "$identity_word" = uninitialized ] || : > "$2"
      ;;
    *) rm -f "$2" ;;
  esac || {
    complain "cannot remove ${2#"$_SYSTEMROOT"} from the image"
    return 1
  }
}

# Moves the image's files of another machine to /etc/svc/aside: network files would give a node two addresses,
# names for storage would give two nodes one. Links to /dev/null stay.
forget_machine() {
  machine_names=$(
    for machine_pattern; do
      each_match forget_aside "$machine_pattern" 3>&1 >&2 || exit 1
    done
  ) || return 1
  if [ -n "$machine_names" ]; then
    log "of another machine, moved to /etc/svc/aside:$(printf '%.1000s' "$machine_names" | tr -d '\000-\037\177')"
  fi
}

forget_aside() {
  if ! machine_owns "$2"; then
    return 0
  fi
  if ! machine_aside=$(image_path "/etc/svc/aside$1") || ! mkdir -p "${machine_aside%/*}" ||
    ! mv -f "$2" "${machine_aside%/*}/"; then
    complain "cannot move ${2#"$_SYSTEMROOT"} of the image to /etc/svc/aside"
    return 1
  fi
  printf ' %s' "${2#"$_SYSTEMROOT"}" >&3
  # The start scripts of Debian make a name only if the file asks for it.
  if [ "$1" = /etc/iscsi/initiatorname.iscsi ] && [ -e "$_SYSTEMROOT/etc/debian_version" ]; then
    echo GenerateName=yes | image_place /etc/iscsi/initiatorname.iscsi 600
  fi
}

# Whether a system would read the file. Other files in its directories belong to the image.
machine_owns() {
  case $1 in
    */ifcfg-lo | *.link) return 1 ;;
    */etc/netplan/*.yaml) ;;
    */etc/netplan/*) return 1 ;;
  esac
  if [ -L "$1" ]; then
    [ "$(readlink "$1")" != /dev/null ]
    return
  fi
  [ -f "$1" ] || return 1
  case $1 in
    */network/interfaces) grep '^[[:blank:]]*iface' "$1" | grep -qv '^[[:blank:]]*iface[[:blank:]]*lo[[:blank:]]' ;;
    */system-connections/* | */systemd/network/*) grep -q '^\[' "$1" ;;
  esac
}

# Whether the image has an ssh server without a key: Debian makes keys only at its installation.
host_keys_wanted() {
  image_program sshd && image_program ssh-keygen || return 1
  for host_key in "$_SYSTEMROOT"/etc/ssh/ssh_host_*_key; do
    if [ -e "$host_key" ]; then
      return 1
    fi
  done
}

# A system without host keys still runs, so failures are warnings.
host_keys() {
  # An installer may have mounted already what the program needs.
  if ! mount_source "$_SYSTEMROOT/dev" >/dev/null && ! chroot_mount; then
    log 'warning: ssh-keygen cannot run in the image: its ssh server has no key'
  else
    in_image ssh-keygen -A || log 'warning: ssh-keygen failed in the image: its ssh server has no key'
  fi
  chroot_unmount
}
