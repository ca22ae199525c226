# GRUB's configuration in the image: the node's kernel options, without root=svc, and the menu.

# dracut assembles LVM and RAID only if told so; other tools ignore the option.
boot_options() (
  device=$(mount_source "$_SYSTEMROOT")
  case $device in
    /dev/mapper/* | /dev/dm-* | /dev/md*) printf 'rd.auto=1%s' "${SVC_KERNELOPTIONS:+ }" ;;
  esac
  printf '%s' "$SVC_KERNELOPTIONS"
)

# Debian reads a directory after the file. Its cloud image sets a partition of its own there.
grub_settings() {
  for grub_file in /etc/default/grub "$_SYSTEMROOT"/etc/default/grub.d/*.cfg; do
    grub_forget "${grub_file#"$_SYSTEMROOT"}" || return 1
  done
  if [ -d "$_SYSTEMROOT/etc/default/grub.d" ]; then
    { grub_variables && printf "GRUB_FORCE_PARTUUID=''\n"; } | image_place /etc/default/grub.d/zz-svc.cfg 644
  else
    grub_variables | image_block /etc/default/grub
  fi
}

# Options that name disks of another machine, for which the kernel would wait. The character before each is
# kept, as the name of another option may end in the same way (rd.luks.root=).
_DISK_OPTIONS='\([[:blank:]"'"'"'=]\)\(resume\|resume_offset\|root\|rootflags\|rd\.lvm\.[lv][vg]\|rd\.luks\.uuid\|rd\.md\.uuid\)=[^ "'"'"']*'

grub_forget() {
  grub_found=$(image_file "$1") && grep -q "^[[:blank:]]*GRUB_CMDLINE.*$_DISK_OPTIONS" "$grub_found" || return 0
  log "options that name disks of another machine are taken out of $1"
  sed "/^[[:blank:]]*GRUB_CMDLINE/s/$_DISK_OPTIONS/\\1/g" "$grub_found" | image_place "${grub_found#"$_SYSTEMROOT"}" 644
}

grub_variables() {
  grub_options=$(boot_options)
  if [ -n "$grub_options" ]; then
    printf 'GRUB_CMDLINE_LINUX=%s\n' "$(shell_quote "$grub_options")"
  fi
  # A kernel with a serial console may have no screen, and GRUB's graphics would wait for it forever.
  case " $grub_options" in
    *' console=ttyS'* | *' console=ttyAMA'*)
      printf 'GRUB_TERMINAL_OUTPUT="${GRUB_TERMINAL_OUTPUT:-console}"\n'
      ;;
  esac
  # Without entries, GRUB itself lists the kernels.
  if [ "$boot_prefix" = grub2 ] && ! boot_entries; then
    printf 'GRUB_ENABLE_BLSCFG=false\n'
  fi
}

shell_quote() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

grub_config() {
  if [ "$boot_prefix" = grub2 ] && boot_entries; then
    boot_entries_update || return 1
  fi
  mkdir -p "$_SYSTEMROOT/boot/$boot_prefix" || return 1
  if ! in_image "$boot_prefix-mkconfig" -o "/boot/$boot_prefix/grub.cfg"; then
    complain "$boot_prefix-mkconfig failed"
    return 1
  fi
  grub_default
}

# Makes GRUB boot the kernel of the image, not the newest one. Entries must exist, as it needs their names.
grub_default() {
  set -- "$_SYSTEMROOT"/boot/vmlinu?-*
  case $#:$SVC_KERNELVERSION in
    1:* | *: | *:*[!A-Za-z0-9._+~-]*) return 0 ;;
  esac
  grub_version=$(printf '%s' "$SVC_KERNELVERSION" | sed 's/\./\\./g')
  grub_file=$_SYSTEMROOT/boot/$boot_prefix/grub.cfg
  grub_entry=$(sed -n "s/.*menuentry_id_option '\([^']*-$grub_version-advanced-[^']*\)'.*/\1/p" "$grub_file" | head -n 1)
  grub_menu=$(sed -n "s/^submenu .*menuentry_id_option '\([^']*\)'.*/\1/p" "$grub_file" | head -n 1)
  for entry_file in "$_SYSTEMROOT"/boot/loader/entries/*.conf; do
    if [ "$boot_prefix" = grub2 ] && grep -qs "^linux.*[-/]$grub_version\\(/linux\\)\\{0,1\\}[[:blank:]]*\$" "$entry_file"; then
      grub_entry=${entry_file##*/}
      grub_entry=${grub_entry%.conf} grub_menu=''
    fi
  done
  if [ -z "$grub_entry" ]; then
    log "warning: GRUB has no entry of kernel $SVC_KERNELVERSION: it boots the newest one"
    return 0
  fi
  grub_entry="${grub_menu:+$grub_menu>}$grub_entry"
  if [ -d "$_SYSTEMROOT/etc/default/grub.d" ]; then
    printf 'GRUB_DEFAULT=%s\n' "$(shell_quote "$grub_entry")" | image_place /etc/default/grub.d/zz-svc-default.cfg 644
  else
    { grub_variables && printf 'GRUB_DEFAULT=%s\n' "$(shell_quote "$grub_entry")"; } | image_block /etc/default/grub
  fi && in_image "$boot_prefix-mkconfig" -o "/boot/$boot_prefix/grub.cfg"
}

# Whether the image has boot loader entries (BLS; RHEL and its relatives). They hold kernel options of another
# machine, and paths that are wrong if /boot is its own file system.
boot_entries() {
  for entry_file in "$_SYSTEMROOT"/boot/loader/entries/*.conf; do
    if [ -f "$entry_file" ]; then
      return 0
    fi
  done
  return 1
}

boot_entries_update() {
  if ! entry_path=$(in_image "$boot_prefix-mkrelpath" /boot); then
    complain 'the file system that holds /boot is not known'
    return 1
  fi
  entry_path=${entry_path%/}
  entry_options=$(root_options)
  # For kernels that are installed later.
  printf '%s\n' "$entry_options" | image_place /etc/kernel/cmdline 644 || return 1
  for entry_file in "$_SYSTEMROOT"/boot/loader/entries/*.conf; do
    if [ -f "$entry_file" ] && ! [ -L "$entry_file" ]; then
      boot_entry < "$entry_file" | image_place "/boot/loader/entries/${entry_file##*/}" 644 || return 1
    fi
  done
}

# Prints the kernel arguments, including the root file system.
root_options() {
  printf '%s\n' "$boot_filesystems" | while read -r root_device root_path _ root_mount; do
    if [ "$root_path" = / ]; then
      root_uuid=$(in_image blkid -s UUID -o value "$root_device" </dev/null 2>/dev/null)
      root_subvolume=$(subvolume "$root_mount")
      printf 'root=%s ro%s' "${root_uuid:+UUID=}${root_uuid:-$root_device}" \
        "${root_subvolume:+ rootflags=${root_subvolume#,}}"
    fi
  done
  root_others=$(boot_options)
  printf '%s' "${root_others:+ }$root_others"
}

boot_entry() {
  while IFS= read -r entry_line || [ -n "$entry_line" ]; do
    case $entry_line in
      'options '* | 'options	'*) printf 'options %s\n' "$entry_options" ;;
      'linux '* | 'linux	'* | 'initrd '* | 'initrd	'*) entry_files "$entry_line" ;;
      *) printf '%s\n' "$entry_line" ;;
    esac
  done
}

# Prints a line of a boot loader entry with the paths that GRUB sees.
entry_files() (
  set -f
  # shellcheck disable=SC2086 # words of a line
  set -- $1
  printf '%s' "$1"
  shift
  for file in "$@"; do
    case $file in
      */*) printf ' %s/%s' "$entry_path" "${file##*/}" ;;
      *) printf ' %s' "$file" ;;
    esac
  done
  printf '\n'
)
