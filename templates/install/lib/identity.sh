# Files that must differ from node to node: those of the image are removed before the node's own are written.

# Removes the files of the image that match the patterns. Only the last part of a pattern holds wildcards. Links stay:
# what a link points to has a name of its own.
forget_identity() (
  IFS=''
  for identity_pattern; do
    identity_directory=$_SYSTEMROOT
    if [ -n "${identity_pattern%/*}" ]; then
      identity_directory=$(image_path "${identity_pattern%/*}" whole) || continue
    fi
    # shellcheck disable=SC2231 # the pattern is to be expanded
    for identity_file in "$identity_directory"/${identity_pattern##*/}; do
      if [ -f "$identity_file" ] && ! [ -L "$identity_file" ] && ! forget_file "$identity_pattern" "$identity_file"; then
        complain "cannot remove ${identity_file#"$_SYSTEMROOT"} from the image"
        exit 1
      fi
    done
  done
)

# systemd writes a new machine id into an empty file. When the file is missing, or holds the word uninitialized, systemd
# takes the boot for the very first one, and enables and disables units as the distribution presets them.
forget_file() {
  case $1 in
    /etc/machine-id)
      read -r identity_word < "$2"
      if [ "$identity_word" != uninitialized ]; then
        : > "$2"
      fi
      ;;
    *) rm -f "$2" ;;
  esac
}

# Moves what the image holds of another machine out of the way: network files would give a node two addresses, and names
# for storage would give two nodes one. They are kept in /etc/svc/aside. A link to /dev/null is nobody's.
forget_machine() (
  IFS=''
  machine_names=''
  for machine_pattern; do
    machine_directory=$_SYSTEMROOT
    if [ -n "${machine_pattern%/*}" ]; then
      machine_directory=$(image_path "${machine_pattern%/*}" whole) || continue
    fi
    # shellcheck disable=SC2231 # the pattern is to be expanded
    for machine_file in "$machine_directory"/${machine_pattern##*/}; do
      if ! machine_owns "$machine_file"; then
        continue
      fi
      if ! machine_aside=$(image_path "/etc/svc/aside$machine_pattern") || ! mkdir -p "${machine_aside%/*}" ||
        ! mv -f "$machine_file" "${machine_aside%/*}/"; then
        complain "cannot move ${machine_file#"$_SYSTEMROOT"} of the image to /etc/svc/aside"
        exit 1
      fi
      machine_names="$machine_names ${machine_file#"$_SYSTEMROOT"}"
      # The start scripts of Debian make a name only where the file says so.
      if [ "$machine_pattern" = /etc/iscsi/initiatorname.iscsi ] && [ -e "$_SYSTEMROOT/etc/debian_version" ]; then
        echo GenerateName=yes | image_place /etc/iscsi/initiatorname.iscsi 600 || exit 1
      fi
    done
  done
  if [ -n "$machine_names" ]; then
    log "of another machine, moved to /etc/svc/aside:$(printf '%.1000s' "$machine_names" | tr -d '\000-\037\177')"
  fi
)

# Whether a system would read the file. Other files in its directories are the image's.
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

# Whether the image has an ssh server without a key: Debian makes keys only when the server is installed.
host_keys_wanted() {
  image_program sshd && image_program ssh-keygen || return 1
  for host_key in "$_SYSTEMROOT"/etc/ssh/ssh_host_*_key; do
    if [ -e "$host_key" ]; then
      return 1
    fi
  done
}

# A system without host keys still runs: what fails here is a warning.
host_keys() {
  # An installer may already have mounted what the program needs.
  if ! mount_source "$_SYSTEMROOT/dev" >/dev/null && ! chroot_mount; then
    log 'warning: ssh-keygen cannot run in the image: its ssh server has no key'
  else
    in_image ssh-keygen -A || log 'warning: ssh-keygen failed in the image: its ssh server has no key'
  fi
  chroot_unmount
}
