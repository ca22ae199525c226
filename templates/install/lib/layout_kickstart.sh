# Writes a layout in the words of the Red Hat installer to $SVC_PARTITIONING.

part_words() {
  volume_words
  [ "$d_keep" = yes ] || [ "$p_keep" = no ] ||
    give_up "is installed by a kickstart, which cannot keep a partition: the disk layout $layout"
}

volume_words() {
  [ -z "$p_secret" ] || give_up "is installed by a kickstart, which cannot encrypt $p_name: the disk layout $layout"
}

disk_words() {
  for words_disk in $(chosen_disks); do
    if ! is_kept "$words_disk"; then
      words_clear=$words_clear${words_clear:+,}$words_disk
      words_label=$d_table
    elif [ -z "$d_labels" ]; then
      continue
    fi
    words_use=$words_use${words_use:+,}$words_disk
  done
}

# Prints the options of a size and of a file system.
size_options() {
  case $p_size in
    rest) printf ' --size=64 --grow' ;;
    *%) printf ' --size=%s' "$((($(sed -n "s/^$1 \([0-9]*\) .*/\1/p" "$_PLAN/disks") - 2) * ${p_size%?} / 100))" ;;
    *) printf ' --size=%s' "$p_size" ;;
  esac
}

content_options() {
  printf '%s' "${p_format:+ --fstype=$p_format}${p_label:+ --label=$p_label}${p_options:+ --fsoptions=$p_options}"
}

part_kickstart() {
  case $p_use in
    efi) p_mount=/boot/efi p_format=efi p_raid=1 ;;
    bios_grub) p_mount=biosboot p_format=biosboot ;;
  esac
  [ "$p_format" != swap ] || p_mount=swap
  kickstart_members=''
  kickstart_count=$(chosen_disks | wc -l)
  for kickstart_disk in $(chosen_disks); do
    kickstart_what=${p_mount:-none}
    if is_kept "$kickstart_disk"; then
      [ -z "$p_mount" ] || printf 'part %s%s --noformat --onpart=%s\n' "$p_mount" "$(content_options)" \
        "$(labelled "$kickstart_disk" "$p_label" | sed 's|/dev/||')"
      continue
    fi
    if [ -n "$p_raid" ] && [ "$kickstart_count" -gt 1 ]; then
      kickstart_what=raid.$p_name-$kickstart_disk
      kickstart_members="$kickstart_members $kickstart_what"
    elif [ -n "$p_group" ]; then
      kickstart_what=pv.$p_name-$kickstart_disk
      printf '%s\n' "$kickstart_what" >> "$_PLAN/pv.$p_group"
    fi
    printf 'part %s%s --ondisk=%s' "$kickstart_what" "$(size_options "$kickstart_disk")" "$kickstart_disk"
    [ "$kickstart_what" != "$p_mount" ] || content_options
    printf '\n'
  done
  [ -n "$kickstart_members" ] || return 0
  if [ -n "$p_group" ]; then
    p_mount=pv.$p_name
    printf '%s\n' "$p_mount" >> "$_PLAN/pv.$p_group"
  fi
  printf 'raid %s --level=%s --device=%s%s%s\n' "${p_mount:-none}" "$p_raid" "$p_name" "$(content_options)" \
    "$kickstart_members"
}

volume_kickstart() {
  if [ -e "$_PLAN/pv.$v_group" ]; then
    printf 'volgroup %s %s\n' "$v_group" "$(tr '\n' ' ' < "$_PLAN/pv.$v_group")"
    rm -f "$_PLAN/pv.$v_group"
  fi
  [ "$p_format" != swap ] || p_mount=swap
  case $p_size in
    *%) kickstart_size=" --percent=${p_size%?}" ;;
    *) kickstart_size=$(size_options none) ;;
  esac
  printf 'logvol %s --vgname=%s --name=%s%s%s\n' "${p_mount:-none}" "$v_group" "$p_name" "$kickstart_size" \
    "$(content_options)"
}

# The installer brings its own programs and its own kernel.
programs='' kernel=''
check_all
words_use='' words_clear='' words_label=gpt
pass words
{
  printf 'ignoredisk --only-use=%s\n' "$words_use"
  printf 'clearpart --all --initlabel --drives=%s --disklabel=%s\n' "$words_clear" "$words_label"
  pass kickstart
} > "$SVC_PARTITIONING"
