# Provides the initramfs of a system on the node's own disk. The packed one, which the node has just booted,
# suits any machine. A new one is built inside the image if the root file system is on LVM or RAID, if a
# script has changed its sources, or if the image has none; for the image's kernel alone if that is known.
# svcd's part of it is inactive without root=svc.

boot_initramfs() {
  set -- "$_SYSTEMROOT"/boot/vmlinu?-*
  if [ -n "$SVC_KERNELVERSION" ] && [ -e "$_SYSTEMROOT/boot/vmlinuz-$SVC_KERNELVERSION" ]; then
    set -- "/boot/vmlinuz-$SVC_KERNELVERSION"
    if initramfs_packed; then
      log "the initramfs of kernel $SVC_KERNELVERSION is the one that came with the image"
      return 0
    fi
  fi
  for initramfs_kernel; do
    initramfs_version=${initramfs_kernel##*/vmlinu?-}
    if [ -d "$_SYSTEMROOT/usr/lib/modules/$initramfs_version" ] ||
      [ -d "$_SYSTEMROOT/lib/modules/$initramfs_version" ]; then
      initramfs_make "$initramfs_version" || return 1
    else
      log "the initramfs of kernel $initramfs_version stays as it is: the image holds no modules for it"
    fi
  done
}

# Whether the image has the initramfs that this node has booted, and it can mount the root file system.
initramfs_packed() {
  initramfs_file=$(initramfs_name "$SVC_KERNELVERSION")
  case $SVC_INITRDFILE:$(mount_source "$_SYSTEMROOT") in
    *:/dev/mapper/* | *:/dev/dm-* | *:/dev/md*) return 1 ;;
    *-"${initramfs_file##*/}":*) ;;
    *) return 1 ;;
  esac
  # Without logsave initramfs-tools takes each check of the root for failed; an older svcd left it out.
  if image_program logsave && ! program logsave >/dev/null; then
    return 1
  fi
  [ -s "$_SYSTEMROOT$initramfs_file" ] && program find >/dev/null && [ -z "$(
    # The time of a directory reveals files that kept an old time of their own.
    cd "$_SYSTEMROOT/etc" && find initramfs-tools dracut.conf dracut.conf.d modprobe.d modules mdadm udev/rules.d \
      "../lib/modules/$SVC_KERNELVERSION" -newer "$_TMP/unpacked" 2>/dev/null
    grep '^[^#]' crypttab 2>/dev/null
  )" ]
}

initramfs_make() {
  if image_program update-initramfs; then
    set -- update-initramfs -c -k "$1"
  elif image_program dracut; then
    set -- dracut --quiet --force --no-hostonly "$(initramfs_name "$1")" "$1"
  else
    log "warning: the image holds neither update-initramfs nor dracut: the initramfs of kernel $1 stays as it is"
    return 0
  fi
  log "making the initramfs with $1"
  if ! in_image "$@"; then
    complain "$1 failed in the image"
    return 1
  fi
}

# Prints the path of the initramfs by the distribution's naming; GRUB looks for all three names.
initramfs_name() {
  for initramfs_file in "initramfs-$1.img" "initrd-$1" "initrd.img-$1"; do
    if [ -f "$_SYSTEMROOT/boot/$initramfs_file" ]; then
      printf '/boot/%s' "$initramfs_file"
      return
    fi
  done
  printf '/boot/initramfs-%s.img' "$1"
}
