# Writes /etc/fstab of a system on the node's disk to match the mounts of the partscript. A line of the image
# stays if it mounts the same device at the same place. A line for an absent device becomes a comment: it
# stems from another machine, and the system would wait for the device.

# Prints "device path type options" of each disk file system mounted for the image; the path is the image's.
disk_filesystems() {
  while read -r disk_source disk_directory disk_type disk_options _; do
    case $disk_source:$disk_directory/ in
      /dev/*:"$_SYSTEMROOT"/*)
        disk_path=${disk_directory#"$_SYSTEMROOT"}
        printf '%s %s %s %s\n' "$disk_source" "${disk_path:-/}" "$disk_type" "$disk_options"
        ;;
    esac
  done < /proc/mounts
}

# Needs the mounts of chroot_mount, and $boot_filesystems of disk_filesystems.
fstab_write() {
  fstab_old=''
  if fstab_file=$(image_file /etc/fstab); then
    fstab_old=$(without_block < "$fstab_file")
  fi
  {
    if [ -n "$fstab_old" ]; then
      printf '%s\n' "$fstab_old" | fstab_kept 1
    fi
    printf '# svc begin\n'
    printf '%s\n' "$boot_filesystems" | fstab_new
    fstab_swaps | sort -u | while read -r fstab_swap; do
      fstab_swap_line "$fstab_swap"
    done
    printf '# svc end\n'
  } | image_place /etc/fstab 644 || return 1
  fstab_told /etc/fstab
  if [ -s "$_RUN/layout/crypttab" ]; then
    image_program cryptsetup || complain 'the image holds no cryptsetup: it would not open what the disk layout encrypts'
    image_program cryptsetup && image_block /etc/crypttab < "$_RUN/layout/crypttab" || return 1
  fi
  fstab_clean /etc/crypttab 2 600
}

# For a system without its own boot loader: turns lines of absent devices into comments, and adds none. In
# memory, no disk of the image is present.
fstab_forget() {
  boot_filesystems=$(disk_filesystems)
  [ -z "$boot_filesystems" ] || chroot_mount || return 1
  fstab_clean /etc/fstab 1 644 && fstab_clean /etc/crypttab 2 600
  fstab_status=$?
  chroot_unmount
  return "$fstab_status"
}

# fstab_clean FILE FIELD MODE: the field of a line is its device.
fstab_clean() {
  fstab_file=$(image_file "$1") || return 0
  fstab_kept "$2" < "$fstab_file" | image_place "${fstab_file#"$_SYSTEMROOT"}" "$3" || return 1
  fstab_told "$1"
}

fstab_told() {
  fstab_count=$(grep -c '^# svc: ' "$_SYSTEMROOT$1" 2>/dev/null)
  [ "${fstab_count:-0}" -eq 0 ] || log "$1 of the image names devices of another machine: $fstab_count of its lines are comments now"
}

fstab_kept() {
  while IFS= read -r fstab_line || [ -n "$fstab_line" ]; do
    fstab_judge "$fstab_line" "$1"
  done
}

# Prints a line of the image's fstab or crypttab, or a comment that holds it.
fstab_judge() (
  set -f
  field=$2
  # shellcheck disable=SC2046 # fields of a line
  set -- "$1" $(printf '%s' "$1" | tr -d '"')
  case ${2:-} in
    '' | '#'*) printf '%s\n' "$1" && exit ;;
  esac
  if [ "$field" = 2 ]; then
    set -- "$1" "${3:-}" none
  fi
  case ${2:-}:${4:-} in
    /dev/*:* | UUID=*:* | LABEL=*:* | PARTUUID=*:* | PARTLABEL=*:* | ID=*:*) found=$(fstab_device "$2") ;;
    # Swap in a file, shares of a virtual machine's host, other kinds of disks.
    /*:swap) found=$(image_file "$2") ;;
    *:zfs | *:9p | *:virtiofs | *:vboxsf) found='' ;;
    *) printf '%s\n' "$1" && exit ;;
  esac
  if [ -z "$boot_filesystems" ]; then
    found=''
  fi
  mounted=$(printf '%s\n' "$boot_filesystems" | while read -r device path _; do
    if [ "$path" = "${3:-}" ]; then
      printf '%s' "$device"
    fi
  done)
  if [ -z "$found" ]; then
    printf '# svc: not on this machine: %s\n' "$1"
  elif [ -n "$mounted" ] && [ "$mounted" != "$found" ]; then
    printf '# svc: another device here: %s\n' "$1"
  else
    printf '%s\n' "$1"
  fi
)

# Prints the device that the first field of a line means; nothing if this machine does not have it.
fstab_device() {
  case $1 in
    /dev/*) [ ! -e "$1" ] || printf '%s' "$1" ;;
    ID=*) [ ! -e "/dev/disk/by-id/${1#ID=}" ] || printf '%s' "/dev/disk/by-id/${1#ID=}" ;;
    *) in_image findfs "$1" </dev/null 2>/dev/null ;;
  esac
}

# Prints lines for mounted file systems that no line of the image mounts.
fstab_new() {
  while read -r fstab_source fstab_path fstab_type fstab_options; do
    if fstab_mounts "$fstab_source" "$fstab_path"; then
      continue
    fi
    fstab_uuid=$(in_image blkid -s UUID -o value "$fstab_source" </dev/null 2>/dev/null)
    case $fstab_type:$fstab_path in
      xfs:* | btrfs:*) fstab_pass=0 ;;
      *:/) fstab_pass=1 ;;
      *) fstab_pass=2 ;;
    esac
    printf '%s %s %s %s 0 %s\n' "${fstab_uuid:+UUID=}${fstab_uuid:-$fstab_source}" "$fstab_path" \
      "$fstab_type" "$(fstab_layout "$fstab_path")$(subvolume "$fstab_options")$(fstab_spare "$fstab_path")" "$fstab_pass"
  done
}

# Prints the mount options of the disk layout.
fstab_layout() {
  layout_options=$(while read -r layout_path layout_words; do
    [ "$layout_path" != "$1" ] || printf '%s' "$layout_words"
  done < "$_RUN/layout/options")
  printf '%s' "${layout_options:-defaults}"
} 2>/dev/null

# Firmware knows no RAID: /boot/efi is on one of the disks that hold /boot, and optional.
fstab_spare() {
  case $1:$(root_disks) in
    */efi:*/dev/*/dev/*) printf ',nofail,x-systemd.device-timeout=10s' ;;
  esac
}

# Prints the active swap, and swap that the partscript made on the disks of the image.
fstab_swaps() {
  while read -r fstab_swap _; do
    case $fstab_swap in
      /dev/zram*) ;;
      /dev/*) [ ! -b "$fstab_swap" ] || printf '%s\n' "$fstab_swap" ;;
      "$_SYSTEMROOT"/*) printf '%s\n' "${fstab_swap#"$_SYSTEMROOT"}" ;;
    esac
  done < /proc/swaps
  fstab_disks=$(disks_of '')
  for fstab_block in /sys/class/block/*; do
    fstab_swap=$(block_node "${fstab_block##*/}")
    for fstab_disk in $(layers "$fstab_block" | sed -n 's|^disk ||p'); do
      case " $(printf '%s' "$fstab_disks" | tr '\n' ' ') " in
        *" $fstab_disk "*) ;;
        *) continue ;;
      esac
      if [ "$(in_image blkid -p -s TYPE -o value "$fstab_swap" </dev/null 2>/dev/null)" = swap ]; then
        printf '%s\n' "$fstab_swap"
      fi
    done
  done
} 2>/dev/null

# Prints the line of one swap, unless the image has it.
fstab_swap_line() {
  if ! fstab_mounts "$1" none && ! fstab_mounts "$1" swap; then
    # A swap file has no UUID to find it by.
    case $1 in
      /dev/*) fstab_uuid=$(in_image blkid -s UUID -o value "$1" </dev/null 2>/dev/null) ;;
      *) fstab_uuid='' ;;
    esac
    printf '%s none swap sw 0 0\n' "${fstab_uuid:+UUID=}${fstab_uuid:-$1}"
  fi
}

fstab_mounts() (
  set -f
  printf '%s\n' "$fstab_old" | while read -r source path _; do
    if [ "$path" = "$2" ] && [ "$(fstab_device "$source")" = "$1" ]; then
      echo yes
    fi
  done | grep -q yes
)

# Prints the btrfs subvolume of mount options as another option.
subvolume() (
  set -f
  IFS=,
  for option in $1; do
    case $option in
      subvol=*) printf ',%s' "$option" ;;
    esac
  done
)
