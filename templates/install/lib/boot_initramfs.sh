# The initramfs of a system on the node's own disk is built anew, on the node and inside the image. The one that came
# with the image may know no disk, or only the disks of the machine where it was built. svcd's part in it does nothing
# without root=svc.

boot_initramfs() {
  for initramfs_kernel in "$_SYSTEMROOT"/boot/vmlinu?-*; do
    initramfs_version=${initramfs_kernel##*/vmlinu?-}
    if [ -d "$_SYSTEMROOT/usr/lib/modules/$initramfs_version" ] ||
      [ -d "$_SYSTEMROOT/lib/modules/$initramfs_version" ]; then
      initramfs_make "$initramfs_version" || return 1
    else
      log "the initramfs of kernel $initramfs_version stays as it is: the image holds no modules for it"
    fi
  done
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

# The path of the initramfs under the name that the distribution uses; GRUB looks for all three names.
initramfs_name() {
  for initramfs_file in "initramfs-$1.img" "initrd-$1" "initrd.img-$1"; do
    if [ -f "$_SYSTEMROOT/boot/$initramfs_file" ]; then
      printf '/boot/%s' "$initramfs_file"
      return
    fi
  done
  printf '/boot/initramfs-%s.img' "$1"
}
