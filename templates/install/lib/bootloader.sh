# The image's own GRUB puts a boot loader on the node's disk. Under EFI it goes to the path that every firmware tries.
# No boot entry is made, because an entry would come before the network in the boot order.

# For a node without a partscript: no disk is erased unless somebody asked for it. A prescript may have mounted one.
partition_needed() {
  if ! mount_source "$_SYSTEMROOT" >/dev/null; then
    complain "localinstall needs a partscript that mounts a disk on $_SYSTEMROOT"
    return 1
  fi
}

bootloader() {
  if image_program grub2-install; then
    boot_prefix=grub2
  elif image_program grub-install; then
    boot_prefix=grub
  else
    complain 'the image holds neither grub2-install nor grub-install'
    return 1
  fi
  if ! ls "$_SYSTEMROOT"/boot/vmlinu* >/dev/null 2>&1; then
    complain 'the image holds no kernel in /boot'
    return 1
  fi
  boot_filesystems=$(disk_filesystems)
  case $boot_filesystems in
    *' / '*) ;;
    *)
      complain "$_SYSTEMROOT is not on a disk: localinstall needs a partscript that mounts one"
      return 1
      ;;
  esac
  chroot_mount || return 1
  bootloader_install
  boot_status=$?
  chroot_unmount
  return "$boot_status"
}

bootloader_install() {
  fstab_write || return 1
  boot_initramfs || return 1
  grub_settings || return 1
  if [ -d /sys/firmware/efi ]; then
    bootloader_efi || return 1
  else
    bootloader_bios || return 1
  fi
  grub_config
}

bootloader_efi() {
  if ! mount_source "$_SYSTEMROOT/boot/efi" >/dev/null; then
    complain 'no EFI system partition is mounted on /boot/efi of the image'
    return 1
  fi
  case $(uname -m) in
    aarch64) boot_target=arm64-efi boot_suffix=aa64 ;;
    *) boot_target=x86_64-efi boot_suffix=x64 ;;
  esac
  for boot_shim in "$_SYSTEMROOT"/boot/efi/EFI/*/"shim$boot_suffix.efi"; do
    boot_vendor=${boot_shim%/*}
    if [ -f "$boot_vendor/grub$boot_suffix.efi" ]; then
      bootloader_signed "/boot/efi/EFI/${boot_vendor##*/}"
      return
    fi
  done
  # RHEL's grub2-install needs --force under EFI, because what it writes does not pass Secure Boot.
  if ! in_image "$boot_prefix-install" --target="$boot_target" --efi-directory=/boot/efi --removable --no-nvram \
    --force; then
    complain "$boot_prefix-install failed for EFI"
    return 1
  fi
}

# For images that hold the distribution's signed loaders in the directory $1 (RHEL and its relatives). The fallback
# loader is removed: if it lay beside the shim, the shim would start it, and it would make boot entries.
bootloader_signed() {
  if ! boot_uuid=$(in_image "$boot_prefix-probe" --target=fs_uuid /boot) ||
    ! boot_path=$(in_image "$boot_prefix-mkrelpath" "/boot/$boot_prefix"); then
    complain 'the file system that holds /boot is not known'
    return 1
  fi
  # shellcheck disable=SC2016 # variables of GRUB
  printf 'search --no-floppy --fs-uuid --set=dev %s\nset prefix=($dev)%s\nexport $prefix\nconfigfile $prefix/grub.cfg\n' \
    "$boot_uuid" "$boot_path" | image_place "$1/grub.cfg" 644 || return 1
  if ! in_image mkdir -p /boot/efi/EFI/BOOT ||
    ! in_image rm -f "/boot/efi/EFI/BOOT/fb$boot_suffix.efi" ||
    ! in_image cp "$1/shim$boot_suffix.efi" "/boot/efi/EFI/BOOT/BOOT$boot_suffix.EFI" ||
    ! in_image cp "$1/grub$boot_suffix.efi" /boot/efi/EFI/BOOT/; then
    complain 'cannot copy the boot loader to EFI/BOOT of the EFI system partition'
    return 1
  fi
}

bootloader_bios() {
  boot_disks=$(root_disks)
  if [ -z "$boot_disks" ]; then
    complain 'the disk that holds /boot is not known'
    return 1
  fi
  for boot_disk in $boot_disks; do
    if ! in_image "$boot_prefix-install" --target=i386-pc "$boot_disk"; then
      complain "$boot_prefix-install failed on $boot_disk"
      return 1
    fi
  done
}

# The disks that hold /boot. For a plain partition or disk sysfs knows, for LVM and RAID GRUB does.
root_disks() (
  device=$(mount_source "$_SYSTEMROOT/boot") || device=$(mount_source "$_SYSTEMROOT") || exit 1
  class=/sys/class/block/${device##*/}
  if [ -e "$class/partition" ]; then
    parent=$(cd -P "$class/.." && pwd -P) && printf '/dev/%s\n' "${parent##*/}"
  elif [ -e "$class" ] && [ -z "$(ls -A "$class/slaves" 2>/dev/null)" ]; then
    printf '%s\n' "$device"
  else
    in_image "$boot_prefix-probe" --target=disk /boot
  fi
)
