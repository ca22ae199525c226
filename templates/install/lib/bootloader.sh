# Installs the image's own GRUB on the node's disk. Under EFI it goes to the path that every firmware tries.
# No boot entry is made: it would precede the network in the boot order.

# Without a partscript no disk is erased unless it was asked for. A prescript may have mounted one.
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
  # An image made from a container has its kernel only beside the modules, where GRUB does not look.
  if ! ls "$_SYSTEMROOT"/boot/vmlinu* >/dev/null 2>&1 &&
    boot_kernel=$(image_file "/usr/lib/modules/$SVC_KERNELVERSION/vmlinuz"); then
    mkdir -p "$_SYSTEMROOT/boot" && cp "$boot_kernel" "$_SYSTEMROOT/boot/vmlinuz-$SVC_KERNELVERSION" || return 1
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
  for boot_program in $(layers_of ''); do
    case $boot_program in
      mdadm | lvm | cryptsetup)
        if ! image_program "$boot_program"; then
          complain "the image holds no $boot_program: its system would not find / on this disk"
          return 1
        fi
        ;;
    esac
  done
  chroot_mount || return 1
  bootloader_install
  boot_status=$?
  chroot_unmount
  return "$boot_status"
}

bootloader_install() {
  fstab_write || return 1
  if [ -s "$_RUN/layout/seal" ]; then
    seal_disks || return 1
  fi
  boot_initramfs || return 1
  grub_settings || return 1
  if [ -d /sys/firmware/efi ]; then
    bootloader_efi && bootloader_copies || return 1
    log 'no entry is made in the boot list of the firmware: it finds the system in EFI/BOOT of the disk, after the network'
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
  if boot_shim=$(image_file "/usr/lib/shim/shim$boot_suffix.efi.signed") &&
    boot_signed=$(image_file "/usr/lib/grub/$boot_target-signed/grub$boot_suffix.efi.signed"); then
    bootloader_packaged
    return
  fi
  log 'the image holds no signed boot loader (shim-signed): its disk does not boot with Secure Boot on'
  # RHEL's grub2-install needs --force under EFI, because what it writes does not pass Secure Boot.
  if ! in_image "$boot_prefix-install" --target="$boot_target" --efi-directory=/boot/efi --removable --no-nvram \
    --force; then
    complain "$boot_prefix-install failed for EFI"
    return 1
  fi
}

# For images whose packages leave the signed loaders in /usr/lib (Debian, Ubuntu). This GRUB loads no modules,
# and reads its configuration in the directory that is written in it.
bootloader_packaged() {
  boot_vendor=$(grep -ao '/EFI/[a-z][a-z]*' "$boot_signed" | head -n 1)
  boot_vendor=/boot/efi${boot_vendor:-/EFI/debian}
  if ! mkdir -p "$_SYSTEMROOT$boot_vendor" "$_SYSTEMROOT/boot/$boot_prefix" ||
    ! cp "$boot_shim" "$_SYSTEMROOT$boot_vendor/shim$boot_suffix.efi" ||
    ! cp "$boot_signed" "$_SYSTEMROOT$boot_vendor/grub$boot_suffix.efi"; then
    complain 'cannot copy the signed boot loader to the EFI system partition'
    return 1
  fi
  if boot_shim=$(image_file "/usr/lib/shim/mm$boot_suffix.efi.signed"); then
    cp "$boot_shim" "$_SYSTEMROOT$boot_vendor/mm$boot_suffix.efi" || return 1
  fi
  log "the boot loader is shim and GRUB as the image's distribution signed them"
  bootloader_signed "$boot_vendor"
}

# For images with the distribution's signed loaders in the directory $1 (RHEL and its relatives). The fallback
# loader is removed: the shim would start it, and it would make boot entries.
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
  # MokManager, which shim starts to enrol a key of the site.
  if [ -f "$_SYSTEMROOT$1/mm$boot_suffix.efi" ]; then
    in_image cp "$1/mm$boot_suffix.efi" /boot/efi/EFI/BOOT/ || log 'warning: MokManager is not in EFI/BOOT'
  fi
}

# Firmware knows no RAID: the other disks that hold /boot get copies on their own EFI partitions.
bootloader_copies() {
  copies_done=$(disks_of /boot/efi)
  for copies_disk in $(root_disks); do
    case " $(printf '%s' "$copies_done" | tr '\n' ' ') " in
      *" $copies_disk "*) continue ;;
    esac
    copies_made=''
    for copies_part in "/sys/class/block/$(block_name "$copies_disk")"/*/partition; do
      copies_part=${copies_part%/partition}
      copies_part=$(block_node "${copies_part##*/}")
      case $(in_image blkid -p -s PART_ENTRY_TYPE -o value "$copies_part" </dev/null 2>/dev/null) in
        c12a7328-f81f-11d2-ba4b-00a0c93ec93b | 0xef) ;;
        *) continue ;;
      esac
      mkdir -p "$_RUN/esp"
      if ! mount "$copies_part" "$_RUN/esp"; then
        copies_made=no
        log "warning: the EFI system partition $copies_part cannot be mounted: the partscript has to format it (mkfs.vfat)"
        continue
      fi
      cp -r "$_SYSTEMROOT/boot/efi/EFI" "$_RUN/esp/"
      copies_made=$?
      umount "$_RUN/esp"
      if [ "$copies_made" -ne 0 ]; then
        complain "the boot loader cannot be copied to the EFI system partition $copies_part"
        return 1
      fi
      log "the boot loader is on $copies_part too"
    done
    if [ -z "$copies_made" ]; then
      log "warning: $copies_disk has no EFI system partition: the node does not start from it alone"
    fi
  done
}

bootloader_bios() {
  boot_disks=$(root_disks)
  if [ -z "$boot_disks" ]; then
    complain 'the disk that holds /boot is not known'
    return 1
  fi
  boot_done=''
  for boot_disk in $boot_disks; do
    if in_image "$boot_prefix-install" --target=i386-pc "$boot_disk"; then
      boot_done=yes
    else
      log "warning: $boot_prefix-install failed on $boot_disk: the node does not start from it alone"
    fi
  done
  if [ -z "$boot_done" ]; then
    complain "$boot_prefix-install failed on $(printf '%s' "$boot_disks" | tr '\n' ' ')"
    return 1
  fi
}

# sysfs replaces / in device names with ! (cciss!c0d0).
block_name() {
  printf '%s' "${1#/dev/}" | tr / '!'
}

block_node() {
  printf '/dev/%s' "$1" | tr '!' /
}

# Prints what the block device $1 in sysfs lies on: each disk as "disk NAME", and the programs that the layers
# between need. A disk with several paths counts as its mapping.
layers() (
  path=$(cd -P "$1" 2>/dev/null && pwd -P) || exit 0
  if [ -e "$path/partition" ]; then
    path=${path%/*}
  fi
  lower=$(ls "$path/slaves" 2>/dev/null)
  case $(cat "$path/dm/uuid" 2>/dev/null) in
    mpath-*) lower='' ;;
    LVM-*) printf 'lvm\n' ;;
    CRYPT-*) printf 'cryptsetup\n' ;;
  esac
  if [ -d "$path/md" ]; then
    printf 'mdadm\n'
  fi
  for each in $lower; do
    layers "$path/slaves/$each"
  done
  if [ -z "$lower" ]; then
    printf 'disk %s\n' "$(block_node "${path##*/}")"
  fi
)

# Prints the layers of the file system mounted at $1 of the image; btrfs may have several devices.
layers_of() (
  source=$(mount_source "$_SYSTEMROOT$1") || exit 1
  name=$(readlink -f "$source") || name=$source
  name=$(block_name "$name")
  if ! [ -e "/sys/class/block/$name" ]; then
    name=$(grep -lxF "${source#/dev/mapper/}" /sys/class/block/*/dm/name 2>/dev/null)
    name=${name%/dm/name}
    name=${name##*/}
  fi
  [ -n "$name" ] || exit 1
  {
    layers "/sys/class/block/$name"
    for each in /sys/fs/btrfs/*/devices/"$name"; do
      for member in "${each%/*}"/*; do
        layers "$member"
      done
    done
  } | sort -u
)

# Prints the disks that hold the file system at $1 of the image.
disks_of() {
  layers_of "$1" | sed -n 's|^disk ||p'
}

# Prints the disks that hold /boot. Each gets a boot loader, so the node starts without the others too.
root_disks() {
  root_disks=$(disks_of /boot)
  root_disks=${root_disks:-$(disks_of '')}
  printf '%s\n' "${root_disks:-$(in_image "$boot_prefix-probe" --target=disk /boot)}"
}
