# Boot loader on the node's own disk, by the image's own GRUB. Under EFI it goes to the path that every
# firmware tries, and no boot entry is made: an entry would come before the network in the boot order.

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
  if [ -z "$boot_filesystems" ]; then
    complain "$_SYSTEMROOT is not on a disk: localinstall needs a partscript that mounts one"
    return 1
  fi
  chroot_mount || return 1
  bootloader_install
  boot_status=$?
  chroot_unmount
  return "$boot_status"
}

bootloader_install() {
  printf '%s\n' "$boot_filesystems" | fstab_lines | image_block /etc/fstab || return 1
  if [ -n "$SVC_KERNELOPTIONS" ]; then
    printf 'GRUB_CMDLINE_LINUX=%s\n' "$(shell_quote "$SVC_KERNELOPTIONS")" | image_block /etc/default/grub ||
      return 1
  fi
  if [ -d /sys/firmware/efi ]; then
    bootloader_efi || return 1
  else
    bootloader_bios || return 1
  fi
  mkdir -p "$_SYSTEMROOT/boot/$boot_prefix" || return 1
  if ! in_image "$boot_prefix-mkconfig" -o "/boot/$boot_prefix/grub.cfg"; then
    complain "$boot_prefix-mkconfig failed"
    return 1
  fi
}

bootloader_efi() {
  if ! mount_source "$_SYSTEMROOT/boot/efi" >/dev/null; then
    complain 'no EFI system partition is mounted on /boot/efi of the image'
    return 1
  fi
  case $(uname -m) in
    aarch64) boot_target=arm64-efi ;;
    *) boot_target=x86_64-efi ;;
  esac
  if ! in_image "$boot_prefix-install" --target="$boot_target" --efi-directory=/boot/efi --removable --no-nvram; then
    complain "$boot_prefix-install failed for EFI"
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

# Lines "device, path in the image, type" of the disk file systems mounted for the image.
disk_filesystems() {
  while read -r disk_source disk_directory disk_type _; do
    case $disk_source:$disk_directory/ in
      /dev/*:"$_SYSTEMROOT"/*)
        disk_path=${disk_directory#"$_SYSTEMROOT"}
        printf '%s %s %s\n' "$disk_source" "${disk_path:-/}" "$disk_type"
        ;;
    esac
  done < /proc/mounts
}

# Entries for the file systems that the image's own /etc/fstab does not name: without one for / it would
# stay read-only.
fstab_lines() {
  while read -r fstab_source fstab_path fstab_type; do
    if without_block < "$_SYSTEMROOT/etc/fstab" 2>/dev/null |
      grep -q "^[^#[:space:]][^[:space:]]*[[:space:]][[:space:]]*${fstab_path}[[:space:]]"; then
      continue
    fi
    fstab_uuid=$(in_image blkid -s UUID -o value "$fstab_source" 2>/dev/null)
    case $fstab_path in
      /) fstab_pass=1 ;;
      *) fstab_pass=2 ;;
    esac
    printf '%s %s %s defaults 0 %s\n' "${fstab_uuid:+UUID=}${fstab_uuid:-$fstab_source}" "$fstab_path" \
      "$fstab_type" "$fstab_pass"
  done
}

# The disks below /boot: from sysfs for a plain partition or disk, by GRUB for LVM and RAID.
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

shell_quote() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}
