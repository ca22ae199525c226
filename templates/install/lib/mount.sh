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
}

unmount_each() {
  for below_directory in $below_list; do
    below_directory=$(printf '%b' "$below_directory")
    umount "$below_directory" 2>/dev/null || umount -l "$below_directory"
  done
}

# Without a partscript the image lives in memory, unless something is mounted already.
partition_default() {
  if mount_source "$_SYSTEMROOT" >/dev/null; then
    log "$_SYSTEMROOT is mounted already"
    return 0
  fi
  if ! mount -t tmpfs -o size=75%,mode=0755 svcroot "$_SYSTEMROOT"; then
    complain "cannot mount a tmpfs on $_SYSTEMROOT"
    return 1
  fi
}

partition_script() {
  # A killed run may have left processes and mounts that keep its disks busy.
  script_end
  release_disks || return 1
  run_script partscript "$1" || return 1
  if ! mount_source "$_SYSTEMROOT" >/dev/null; then
    complain "the partscript left nothing mounted on $_SYSTEMROOT"
    return 1
  fi
}

# Mounts what a chroot into the image needs. chroot_unmount undoes it; on_exit calls that too.
chroot_mount() {
  for chroot_directory in dev proc sys run; do
    if [ -L "$_SYSTEMROOT/$chroot_directory" ] || ! mkdir -p "$_SYSTEMROOT/$chroot_directory" "/$chroot_directory" ||
      ! mount -o bind "/$chroot_directory" "$_SYSTEMROOT/$chroot_directory"; then
      complain "cannot mount /$chroot_directory in the image"
      return 1
    fi
    _CHROOT_MOUNTS="$chroot_directory $_CHROOT_MOUNTS"
  done
}

chroot_unmount() {
  for chroot_directory in $_CHROOT_MOUNTS; do
    unmount_below "$_SYSTEMROOT/$chroot_directory"
  done
  _CHROOT_MOUNTS=''
}

# Runs a program of the image in the image, by its path: busybox chroot would prefer its own applet.
in_image() (
  chroot_program=$(program chroot)
  # shellcheck disable=SC2030 # for this program alone
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  export PATH
  name=$1
  shift
  for directory in /usr/sbin /usr/bin /sbin /bin; do
    if [ -e "$_SYSTEMROOT$directory/$name" ] || [ -L "$_SYSTEMROOT$directory/$name" ]; then
      exec "$chroot_program" "$_SYSTEMROOT" "$directory/$name" "$@"
    fi
  done
  printf 'svc: the image holds no %s\n' "$name" >&2
  exit 127
)
