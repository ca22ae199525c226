# Mounts as listed in /proc/mounts, where a blank in a name is \040.

# Prints the source of the file system mounted on $1 itself; fails if there is none.
mount_source() (
  found=''
  while read -r source directory _; do
    case $directory in
      *\\*) directory=$(printf '%b' "$directory") ;;
    esac
    if [ "$directory" = "$1" ]; then
      found=$source
    fi
  done < /proc/mounts
  [ -n "$found" ] && printf '%s' "$found"
)

# Undoes every mount on and below $1, the last one first.
unmount_below() {
  below_list=''
  while read -r _ below_directory _; do
    case $below_directory in
      "$1" | "$1"/*) below_list="$below_directory $below_list" ;;
    esac
  done < /proc/mounts
  unmount_each
}

# Undoes mounts made since the first run: disks anywhere, and everything at the places of the installation. A
# swap file would keep its disk busy.
unmount_new() {
  while read -r new_source new_type _; do
    [ "$new_type" != file ] || swapoff "$new_source"
  done < /proc/swaps 2>/dev/null
  below_list=''
  while read -r new_source below_directory _; do
    case $new_source:$below_directory in
      /dev/*:* | *:"$_SYSTEMROOT" | *:"$_SYSTEMROOT"/* | *:"$_TMP") ;;
      *) continue ;;
    esac
    grep -qxF -e "$new_source $below_directory" "$_RUN/mounts" || below_list="$below_directory $below_list"
  done < /proc/mounts
  unmount_each
  root_down
}

# Takes down what root.sh has made.
root_down() {
  unmount_below /run/svcroot
  if [ -e /dev/mapper/svcroot ] && ! DM_DISABLE_UDEV=1 veritysetup close svcroot; then
    complain 'the root of an earlier run cannot be closed'
    return 1
  fi
  [ ! -e /sys/block/nbd0/pid ] || nbd-client -d /dev/nbd0
  root_pid=$(grep -l '^@nbdkit' /proc/[0-9]*/cmdline 2>/dev/null | tr -dc '0-9\n')
  # shellcheck disable=SC2086 # words
  [ -z "$root_pid" ] || kill $root_pid 2>/dev/null || :
}

unmount_each() {
  for below_directory in $below_list; do
    below_directory=$(printf '%b' "$below_directory")
    umount "$below_directory" 2>/dev/null || umount -l "$below_directory"
  done
}

chroot_unmount() {
  for chroot_directory in $_CHROOT_MOUNTS; do
    unmount_below "$_SYSTEMROOT/$chroot_directory"
  done
  _CHROOT_MOUNTS=''
}
