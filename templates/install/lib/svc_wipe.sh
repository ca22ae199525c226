#!/bin/sh
# svc_wipe DISK...: empties used disks or partitions (docs/howto.md). It ends their swap, volume groups,
# mappings and arrays, erases signatures, RAID superblocks, and the first and last MiB of the disk and each
# partition, and makes the kernel forget the partitions. Nothing is erased if something is mounted or one disk
# is wrong.
#
# svc_wipe --release: only ends what lies on the disks of this machine and is not mounted.
set -u
LC_ALL=C
export LC_ALL
sys=/sys/class/block

say() {
  printf 'svc_wipe: %s\n' "$*" >&2
}

# Prints the device of a name in sysfs, which has ! for / (cciss!c0d0).
node() {
  printf '/dev/%s' "$1" | tr '!' /
}

has() {
  command -v "$1" >/dev/null 2>&1
}

# A busybox shell prefers its own applet to a program in PATH.
swap_off() {
  for swap_path in $(printf '%s' "$PATH" | tr ':' ' ') /sbin; do
    [ ! -x "$swap_path/swapoff" ] || break
  done
  "$swap_path/swapoff" "$1"
}

settle() {
  { has udevadm && udevadm settle --timeout=20; } >/dev/null 2>&1 || sleep 1
}

# Prints the block device $1 and everything on top of it, the top first.
stack() {
  for found in "$sys/$1"/holders/* "$sys/$1"/*/partition; do
    found=${found%/partition}
    if [ -e "$found" ]; then
      stack "${found##*/}"
    fi
  done
  printf '%s\n' "$1"
}

# Prints where a part of the stack of $1 is mounted.
mounted() {
  for device in $(stack "$1"); do
    # A mounted btrfs is listed there, under any device name.
    for device_btrfs in /sys/fs/btrfs/*/devices/"$device"; do
      if [ -e "$device_btrfs" ]; then
        printf 'a btrfs of several names' && return 0
      fi
    done
    read -r device_number 2>/dev/null < "$sys/$device/dev" || continue
    # A file system with several devices, such as btrfs, has its own number: there the source counts.
    while read -r _ _ mount_number _ mount_point mount_rest; do
      case $mount_number:${mount_rest##* - } in
        "$device_number":* | *" $(node "$device") "*) printf '%s' "$mount_point" && return 0 ;;
      esac
    done < /proc/self/mountinfo
  done
  return 1
}

# Ends the swap on a device, and the device itself if it is an array or a mapping.
end_one() {
  if grep -q "^$(node "$1") " /proc/swaps 2>/dev/null; then
    swap_off "$(node "$1")"
  fi
  if [ -d "$sys/$1/md" ]; then
    # The kernel stops it too, if the image has no mdadm.
    mdadm --stop "/dev/$1" || echo clear > "$sys/$1/md/array_state"
  elif [ -d "$sys/$1/dm" ]; then
    read -r end_name < "$sys/$1/dm/name"
    dmsetup remove --retry "$end_name"
  fi
}

release_all() {
  swap_off -a
  if has vgchange; then
    vgchange -an
  elif has lvm; then
    lvm vgchange -an
  fi
  for each in "$sys"/*; do
    each=${each##*/}
    # A multipath disk is reached by a mapping, which stays with its partitions.
    case $(cat "$sys/$each/dm/uuid" 2>/dev/null) in
      *mpath-*) continue ;;
    esac
    if [ -d "$sys/$each/md" ] || [ -d "$sys/$each/dm" ]; then
      mounted "$each" >/dev/null || for device in $(stack "$each"); do end_one "$device"; done
    fi
  done
  if has mdadm; then
    mdadm --stop --scan
  fi
}

# Prints the kernel's name of a disk that may be emptied.
usable() {
  usable_name=$(readlink -f "$1") && usable_name=$(printf '%s' "${usable_name#/dev/}" | tr / '!')
  if ! [ -b "$1" ] || ! [ -e "$sys/$usable_name/dev" ]; then
    say "$1 is no block device of this machine"
    return 1
  fi
  if usable_point=$(mounted "$usable_name"); then
    say "$1 is in use: something of it is mounted on $usable_point"
    return 1
  fi
  printf '%s' "$usable_name"
}

erase() {
  erase_node=$(node "$1")
  [ -b "$erase_node" ] && erase_sectors=$(cat "$sys/$1/size") || return 1
  if has mdadm; then
    mdadm --zero-superblock "$erase_node" >/dev/null 2>&1
  fi
  if has wipefs && ! wipefs -a -q "$erase_node" >/dev/null; then
    return 1
  fi
  erase_count=$((erase_sectors < 2048 ? erase_sectors : 2048))
  for erase_from in 0 $((erase_sectors - erase_count)); do
    dd if=/dev/zero of="$erase_node" bs=512 seek="$erase_from" count="$erase_count" conv=notrunc,fsync 2>/dev/null ||
      return 1
  done
}

# udev assembles an array again once one of its disks is touched, so a second round may be needed.
wipe() {
  for _ in 1 2 3; do
    for device in $(stack "$1"); do
      [ "$device" = "$1" ] || end_one "$device"
    done
    wipe_failed=''
    # An array that could not be stopped uses other disks too.
    for device in $(stack "$1"); do
      if [ "$device" = "$1" ] || [ -e "$sys/$device/partition" ]; then
        erase "$device" || wipe_failed=$device
      fi
    done
    settle
    if ! [ -e "$sys/$1/partition" ]; then
      { has blockdev && blockdev --rereadpt "$(node "$1")"; } 2>/dev/null ||
        { has partprobe && partprobe "$(node "$1")"; } 2>/dev/null ||
        { has partx && partx -d "$(node "$1")"; } 2>/dev/null
      settle
    fi
    if [ -z "$wipe_failed" ] && [ "$(stack "$1")" = "$1" ]; then
      return 0
    fi
  done
  say "$(node "$1") cannot be emptied: ${wipe_failed:+$(node "$wipe_failed") cannot be erased; }it holds $(stack "$1" | tr '\n' ' ')"
  return 1
}

case ${1:-} in
  --release)
    release_all
    settle
    exit 0
    ;;
  '' | -*)
    say 'use: svc_wipe DISK...'
    exit 2
    ;;
esac
names=''
for disk; do
  names="$names $(usable "$disk")" || exit 1
done
for name in $names; do
  wipe "$name" || exit 1
done
