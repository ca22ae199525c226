# Makes what a layout says, and mounts it.

settle() {
  udevadm settle --timeout=20 2>/dev/null || sleep 1
}

# Prints the size of a partition in MiB; nothing for the rest.
part_mib() {
  case $p_size in
    rest) ;;
    *%) echo $((($(sed -n "s/^$1 \([0-9]*\) .*/\1/p" "$_PLAN/disks") - 2) * ${p_size%?} / 100)) ;;
    *) echo "$p_size" ;;
  esac
}

# Prints the type of a partition in a table.
part_type() {
  part_is=linux
  [ -z "$p_group" ] || part_is=lvm
  [ -z "$p_raid" ] || part_is=raid
  [ "$p_format" != swap ] || part_is=swap
  case $d_table:${p_use:-$part_is} in
    gpt:efi) echo C12A7328-F81F-11D2-BA4B-00A0C93EC93B ;;
    gpt:bios_grub) echo 21686148-6449-6E6F-744E-656564454649 ;;
    gpt:lvm) echo E6D6D379-F507-44C2-A23C-238F2A3DF928 ;;
    gpt:raid) echo A19D880F-05FC-4D3B-A006-743F0F84911E ;;
    gpt:swap) echo 0657FD6D-A4AB-43C4-84E5-0933C84B4F4F ;;
    gpt:*) echo 0FC63DAF-8483-4772-8E79-3D69D8477DE4 ;;
    *:efi) echo ef ;;
    *:lvm) echo 8e ;;
    *:raid) echo fd ;;
    *:swap) echo 82 ;;
    *) echo 83 ;;
  esac
}

disk_table() {
  for table_disk in $(chosen_disks); do
    if ! is_kept "$table_disk"; then
      printf 'label: %s\n' "$d_table" | sed s/msdos/dos/ > "$_PLAN/table.$table_disk"
      printf '/dev/%s\n' "$table_disk" >> "$_PLAN/wipe"
    fi
  done
}

part_table() {
  for table_disk in $(chosen_disks); do
    if [ -e "$_PLAN/table.$table_disk" ]; then
      table_size=$(part_mib "$table_disk")
      printf '%stype=%s%s\n' "${table_size:+size=${table_size}MiB, }" "$(part_type)" \
        "$([ "$d_table" != gpt ] || printf ', name="%s"' "$p_name")" >> "$_PLAN/table.$table_disk"
      part_node "$table_disk" "$part_number" >> "$_PLAN/parts"
      echo >> "$_PLAN/parts"
    elif [ "$d_keep" = no ] && [ "$p_keep" = no ]; then
      part_node "$table_disk" "$part_number" >> "$_PLAN/wipe"
      echo >> "$_PLAN/wipe"
    fi
  done
}

# One call empties all disks: it erases nothing if one of them is in use.
partition() {
  : > "$_PLAN/wipe"
  : > "$_PLAN/parts"
  pass table
  # shellcheck disable=SC2046 # names of devices
  [ ! -s "$_PLAN/wipe" ] || svc_wipe $(cat "$_PLAN/wipe") || exit 1
  for partition_table in "$_PLAN"/table.*; do
    [ -e "$partition_table" ] || continue
    sfdisk --quiet "/dev/${partition_table##*/table.}" < "$partition_table" || exit 1
  done
  settle
  while read -r partition_node; do
    partition_tries=0
    until [ -b "$partition_node" ]; do
      partition_tries=$((partition_tries + 1))
      [ "$partition_tries" -lt 20 ] || give_up "has made $partition_node, which does not appear"
      sleep 1
    done
  done < "$_PLAN/parts"
  # A new partition may begin at an old signature, which was in the middle of an old partition.
  # shellcheck disable=SC2046
  [ ! -s "$_PLAN/parts" ] || svc_wipe $(cat "$_PLAN/parts") || exit 1
}

# Makes an array of the devices, and sets $made to it.
make_array() {
  array_number=0
  while [ -e "/sys/block/md$array_number" ]; do
    array_number=$((array_number + 1))
  done
  made=/dev/md$array_number
  array_count=$#
  [ "$p_raid" = 0 ] || set -- --bitmap=internal "$@"
  mdadm --create "$made" --run --level="$p_raid" --raid-devices="$array_count" --metadata=1.2 --homehost=any \
    --name="$p_name" "$@" </dev/null || exit 1
  settle
}

part_make() {
  make_devices=''
  for make_disk in $(chosen_disks); do
    if is_kept "$make_disk" && { [ "$d_keep" = yes ] || [ "$p_keep" = yes ]; }; then
      [ -z "$p_label" ] || make_mount "$(labelled "$make_disk" "$p_label")"
      return 0
    fi
    make_devices="$make_devices $(part_node "$make_disk" "$part_number")"
  done
  # shellcheck disable=SC2086 # names of devices
  set -- $make_devices
  case $p_use in
    bios_grub) return 0 ;;
    efi)
      for make_device; do
        tool mkfs.vfat "$make_device" >/dev/null || exit 1
      done
      p_mount=/boot/efi p_options=''
      make_mount "$1"
      return 0
      ;;
  esac
  if [ -n "$p_raid" ] && [ $# -gt 1 ]; then
    make_array "$@"
    set -- "$made"
  fi
  if [ -n "$p_group" ]; then
    for make_device; do
      lvm pvcreate -ff -y "$make_device" || exit 1
      printf '%s\n' "$make_device" >> "$_PLAN/pv.$p_group"
    done
  elif [ $# -gt 0 ]; then
    make_content "$1"
  fi
}

volume_make() {
  if [ -e "$_PLAN/pv.$v_group" ]; then
    # shellcheck disable=SC2046 # names of devices
    lvm vgcreate -y "$v_group" $(cat "$_PLAN/pv.$v_group") || exit 1
    rm -f "$_PLAN/pv.$v_group"
  fi
  case $p_size in
    rest) set -- -l 100%FREE ;;
    *%) set -- -l "${p_size}VG" ;;
    *) set -- -L "${p_size}M" ;;
  esac
  lvm lvcreate -y -Wn -n "$p_name" "$@" "$v_group" || exit 1
  settle
  make_content "/dev/$v_group/$p_name"
}

make_content() {
  made=$1
  if [ -n "$p_secret" ]; then
    made=/dev/mapper/luks-$p_name
    cryptsetup luksFormat -q --key-file "$_KEYS/content/$p_secret" "$1" &&
      cryptsetup open --key-file "$_KEYS/content/$p_secret" "$1" "luks-$p_name" || exit 1
    crypt_key=$(cat "$_KEYS/path/$p_secret") crypt_options=nofail
    if [ "$p_tpm" = yes ]; then
      crypt_key=none crypt_options=tpm2-device=auto,nofail
      [ "$p_mount" != / ] || crypt_options=tpm2-device=auto,x-initrd.attach
      printf '%s %s\n' "$1" "$p_name" >> "$_PLAN/seal"
      (umask 077 && mkdir -p "$_PLAN/seal-keys" && cat "$_KEYS/content/$p_secret" > "$_PLAN/seal-keys/$p_name") || exit 1
    fi
    printf 'luks-%s UUID=%s %s luks,%s\n' "$p_name" "$(cryptsetup luksUUID "$1")" "$crypt_key" "$crypt_options" \
      >> "$_PLAN/crypttab"
  fi
  case $p_format in
    '') return 0 ;;
    ext4) mkfs.ext4 -q -F ${p_label:+-L "$p_label"} "$made" ;;
    vfat) tool mkfs.vfat ${p_label:+-n "$p_label"} "$made" >/dev/null ;;
    swap) tool mkswap ${p_label:+-L "$p_label"} "$made" >/dev/null && { tool swapon "$made" 2>/dev/null || :; } ;;
    *) "mkfs.$p_format" -q -f ${p_label:+-L "$p_label"} "$made" ;;
  esac </dev/null || exit 1
  make_mount "$made"
}

make_mount() {
  [ -z "$p_mount" ] || printf '%s %s %s\n' "$p_mount" "$1" "$p_options" >> "$_PLAN/mounts"
}

# Directories above come first.
mount_all() {
  sort "$_PLAN/mounts" > "$_PLAN/sorted"
  while read -r mount_path mount_device mount_options; do
    mkdir -p "/sysroot$mount_path" && mount "$mount_device" "/sysroot$mount_path" || exit 1
    [ -z "$mount_options" ] || printf '%s %s\n' "$mount_path" "$mount_options" >> "$_PLAN/options"
  done < "$_PLAN/sorted"
}

check_all
partition
pass make
mount_all
