# What is to differ from node to node: the image's own goes, before anything of the node's is put there.

# Removes the files of the image that the patterns mean, which hold wildcards in their last part alone. A link stays:
# what it means has a name of its own.
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

# systemd makes the machine id where the file is empty. A boot without the file, or with the word uninitialized in it, is
# the first of all to it, in which it enables and disables units as the distribution presets them.
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

# Whether the image has an ssh server and no key for it. Debian makes the keys when the server is installed, never later.
host_keys_wanted() {
  image_program sshd && image_program ssh-keygen || return 1
  for host_key in "$_SYSTEMROOT"/etc/ssh/ssh_host_*_key; do
    if [ -e "$host_key" ]; then
      return 1
    fi
  done
}

host_keys() {
  # An installer may have mounted there already what the program needs.
  if ! mount_source "$_SYSTEMROOT/dev" >/dev/null; then
    chroot_mount || return 1
  fi
  in_image ssh-keygen -A || log 'warning: ssh-keygen failed in the image: its ssh server has no key'
  chroot_unmount
}
