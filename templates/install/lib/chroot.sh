# Puts the image's root in its place, and runs programs of the image.

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
