# Finds the disks of a layout and checks all that can be checked. Nothing is written to a disk here.

# Holds the chosen disks, and lines for /etc/fstab and /etc/crypttab, which the boot loader's step reads.
_PLAN=/svcrun/layout
# Holds the secrets that open encrypted file systems: content/NAME, and path/NAME on the node.
_KEYS=/svcrun/keys

# Ends the script. The node's status gets the sentence.
give_up() {
  printf '%s %s\n' "$SVC_NODE" "$*" >&2
  exit 1
}

# Runs a program of the system: a busybox shell prefers its own applet, which knows fewer options.
tool() {
  tool_name=$1
  shift
  for tool_path in $(printf '%s' "$PATH" | tr ':' ' '); do
    if [ -x "$tool_path/$tool_name" ]; then
      "$tool_path/$tool_name" "$@"
      return
    fi
  done
  "$tool_name" "$@"
}

# Goes through the layout once: for each line the function of this pass is called, if there is one.
pass() {
  pass=$1
  layout
}

in_pass() {
  if command -v "$1_$pass" >/dev/null 2>&1; then
    "$1_$pass"
  fi
}

disk() {
  d_name=$1 d_count=$2 d_least=$3 d_type=$4 d_min=$5 d_max=$6 d_by_id=$7 d_order=$8 d_table=$9
  shift 9
  d_keep=$1 d_labels=$2
  part_number=0
  in_pass disk
}

part() {
  p_name=$1 p_use=$2 p_size=$3 p_raid=$4 p_group=$5 p_format=$6 p_mount=$7 p_options=$8 p_label=$9
  shift 9
  p_secret=$1 p_keep=$2 p_tpm=$3
  if [ "$p_use" = firmware ]; then
    if [ -d /sys/firmware/efi ]; then
      p_use=efi
    elif [ "$d_table" = gpt ]; then
      p_use=bios_grub p_size=1
    else
      return 0
    fi
  fi
  part_number=$((part_number + 1))
  in_pass part
}

volume() {
  v_group=$1 p_name=$2 p_size=$3 p_format=$4 p_mount=$5 p_options=$6 p_label=$7 p_secret=$8 p_tpm=$9
  in_pass volume
}

# Lists the disks of this machine, short names first: NAME MIB TYPE.
find_disks() {
  for find_disk in /sys/block/*; do
    find_name=${find_disk##*/}
    case $find_name in
      sr* | fd* | *boot[01] | *rpmb | *!*) continue ;;
    esac
    # Arrays and the like have no device; a path of an NVMe disk is hidden.
    if ! [ -e "$find_disk/device" ] || [ "$(cat "$find_disk/hidden" 2>/dev/null)" = 1 ] ||
      [ "$(cat "$find_disk/ro")$(cat "$find_disk/removable")" != 00 ] ||
      grep -qs '^mpath-' "$find_disk"/holders/*/dm/uuid; then
      continue
    fi
    find_size=$(($(cat "$find_disk/size") / 2048))
    case $find_name:$(cat "$find_disk/queue/rotational") in
      nvme*) find_type=nvme ;;
      *:0) find_type=ssd ;;
      *) find_type=hdd ;;
    esac
    [ "$find_size" -eq 0 ] || printf '%s %s %s %s\n' "$(printf '%s' "$find_name" | wc -c)" "$find_name" "$find_size" "$find_type"
  done | sort -k 1,1n -k 2,2 | sed 's/^[0-9]* //' > "$_PLAN/disks"
}

# Prints the disks that were chosen for this part of the layout.
chosen_disks() {
  sed -n "s/^$d_name //p" "$_PLAN/chosen"
}

is_free() {
  ! grep -q " $1\$" "$_PLAN/chosen"
}

take() {
  printf '%s %s\n' "$d_name" "$1" >> "$_PLAN/chosen"
}

# fits NAME MIB TYPE
fits() {
  if ! is_free "$1" || [ "$2" -lt "$d_min" ] || { [ "$d_max" -gt 0 ] && [ "$2" -gt "$d_max" ]; } ||
    { [ -n "$d_type" ] && [ "$d_type" != "$3" ]; }; then
    return 1
  fi
  [ -n "$d_by_id" ] || return 0
  for fits_link in /dev/disk/by-id/*; do
    # shellcheck disable=SC2254 # a pattern
    case ${fits_link##*/} in
      $d_by_id) [ "$(readlink -f "$fits_link")" != "/dev/$1" ] || return 0 ;;
    esac
  done
  return 1
}

in_order() {
  case $d_order in
    last) sed '1!G;h;$!d' "$_PLAN/disks" ;;
    smallest) sort -k 2,2n "$_PLAN/disks" ;;
    largest) sort -k 2,2nr "$_PLAN/disks" ;;
    *) cat "$_PLAN/disks" ;;
  esac
}

# Prints the device on a disk with a file system of this label: a partition, or the disk itself.
labelled() {
  for labelled_at in "/sys/block/$1" "/sys/block/$1"/*/partition; do
    labelled_at=${labelled_at%/partition}
    if [ "$(tool blkid -p -s LABEL -o value "/dev/${labelled_at##*/}" 2>/dev/null)" = "$2" ]; then
      printf '/dev/%s' "${labelled_at##*/}"
      return 0
    fi
  done
  return 1
}

# Kept disks come first, whatever the order of disks is today: nothing else may take them.
disk_claim() {
  if [ -z "$d_labels" ]; then
    [ "$d_keep" = no ] || disk_choose
    return
  fi
  while read -r claim_disk _; do
    for claim_label in $d_labels; do
      if is_free "$claim_disk" && labelled "$claim_disk" "$claim_label" >/dev/null; then
        take "$claim_disk"
      fi
    done
  done < "$_PLAN/disks"
  if [ "$(chosen_disks | wc -l)" -gt 1 ]; then
    give_up "has several disks that hold $d_labels, which the disk layout $layout keeps: $(chosen_disks | tr '\n' ' ')"
  fi
}

disk_choose() {
  choose_has=$(chosen_disks | wc -l)
  in_order > "$_PLAN/order"
  while read -r choose_disk choose_size choose_type; do
    if [ "$choose_has" -lt "$d_count" ] && fits "$choose_disk" "$choose_size" "$choose_type"; then
      take "$choose_disk"
      choose_has=$((choose_has + 1))
    fi
  done < "$_PLAN/order"
  if [ "$choose_has" -lt "$d_least" ]; then
    give_up "has $choose_has fitting disk(s) for \"$d_name\", the disk layout $layout needs $d_least" \
      "(${d_type:+$d_type, }${d_by_id:+$d_by_id, }$d_min MiB or more)$(
        sed -n "/^$d_name /!s/^\([^ ]*\) \(.*\)/; \2 is taken by \"\1\"/p" "$_PLAN/chosen" | tr -d '\n'
      ); its disks:" \
      "$(sed 's/^\([^ ]*\) \([^ ]*\) \(.*\)/\1 \3 \2 MiB,/' "$_PLAN/disks" | tr '\n' ' ')"
  fi
}

part_node() {
  case $1 in
    *[0-9]) printf '/dev/%sp%s' "$1" "$2" ;;
    *) printf '/dev/%s%s' "$1" "$2" ;;
  esac
}

is_kept() {
  grep -qxF "$1" "$_PLAN/kept"
}

# A disk with something to keep holds it already, or is empty: nothing else is ever overwritten there.
disk_judge() {
  for judge_disk in $(chosen_disks); do
    judge_found='' judge_lacks=''
    for judge_label in $d_labels; do
      if labelled "$judge_disk" "$judge_label" >/dev/null; then
        judge_found="$judge_found $judge_label"
      else
        judge_lacks="$judge_lacks $judge_label"
      fi
    done
    if [ "$d_keep" = yes ] && [ -z "$d_labels" ] || [ -n "$judge_found" ]; then
      printf '%s\n' "$judge_disk" >> "$_PLAN/kept"
      [ -z "$judge_lacks" ] || give_up "holds$judge_found on $judge_disk, but not$judge_lacks: nothing was changed"
    elif [ -n "$d_labels" ]; then
      tool blkid -p "/dev/$judge_disk" >/dev/null 2>&1
      if [ $? -ne 2 ] || ls "/sys/block/$judge_disk"/*/partition >/dev/null 2>&1; then
        give_up "has something on $judge_disk that is not$judge_lacks, which the disk layout $layout keeps: type" \
          "svc_wipe /dev/$judge_disk there if nobody needs it"
      fi
    fi
  done
}

# /etc/crypttab names the path of a secret, and blanks end a field there.
secret_judge() {
  [ -n "$p_secret" ] || return 0
  [ "$p_tpm" = no ] || tpm_judge
  [ -s "$_KEYS/content/$p_secret" ] || give_up "has no secret $p_secret, which encrypts $p_name"
  case $(cat "$_KEYS/path/$p_secret") in
    *[[:space:]]*) give_up "cannot encrypt $p_name: secret $p_secret: field \"path\" holds blanks: move it" ;;
  esac
}

# The key is sealed to what PCR 7 and 14 are now: a start from the disk has to come the same way.
tpm_judge() {
  modprobe -q tpm_tis 2>/dev/null
  modprobe -q tpm_crb 2>/dev/null
  [ -e /dev/tpmrm0 ] || give_up "has no TPM 2.0, to which the disk layout $layout seals $p_name"
  tpm_variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
  [ -e "$tpm_variable" ] || mount -t efivarfs efivarfs /sys/firmware/efi/efivars 2>/dev/null
  case $(od -An -t u1 "$tpm_variable" 2>/dev/null | tr -d '\n') in
    *' 1') ;;
    *) give_up "has Secure Boot off, and the disk layout $layout seals $p_name to it: switch it on, and set loader=grub" ;;
  esac
  [ -e /etc/svc/seal-lacks ] || give_up "has an initramfs of an older svcd: pack its image again"
  tpm_lacks=$(tr '\n' ' ' < /etc/svc/seal-lacks)
  [ -z "$tpm_lacks" ] || give_up "has an image without ${tpm_lacks% }, which the disk layout $layout needs to open $p_name"
}

# The partitions of a disk stay where they are if one of them is kept.
part_judge() {
  secret_judge
  if [ "$p_use" = efi ] && [ -n "$programs" ]; then
    need mkfs.vfat
  fi
  [ "$d_keep" = no ] || return 0
  for judge_disk in $(chosen_disks); do
    is_kept "$judge_disk" || continue
    judge_node=$(part_node "$judge_disk" "$part_number")
    judge_size=$(($(cat "/sys/block/$judge_disk/${judge_node##*/}/size" 2>/dev/null || echo 0) / 2048))
    case $p_size in
      rest | *%) judge_least=1 ;;
      *) judge_least=$p_size ;;
    esac
    if [ "$judge_size" -lt "$judge_least" ] ||
      { [ "$p_keep" = yes ] && [ "$(labelled "$judge_disk" "$p_label")" != "$judge_node" ]; }; then
      give_up "keeps a partition of $judge_disk, but $judge_node is not $p_name of the disk layout $layout"
    fi
  done
}

volume_judge() {
  secret_judge
}

need() {
  command -v "$1" >/dev/null 2>&1 ||
    give_up "has no $1 in its initramfs, which the disk layout $layout needs: add it to the image and pack it"
}

# Whether the kernel has a RAID level, the device mapper, the cipher of LUKS or a file system.
kernel_has() {
  case $1 in
    aes-xts)
      modprobe -q dm_crypt 2>/dev/null
      cryptsetup benchmark --cipher aes-xts --key-size 512 >/dev/null 2>&1
      return
      ;;
    raid[456]) modprobe -q raid456 ;;
    *) modprobe -q "$1" ;;
  esac 2>/dev/null
  case $1 in
    raid*) grep -qs "\[$1\]" /proc/mdstat ;;
    dm_mod) grep -qs device-mapper /proc/misc ;;
    *) grep -qsw "$1" /proc/filesystems ;;
  esac
}

check_all() {
  rm -rf "$_PLAN"
  mkdir -p "$_PLAN" && : > "$_PLAN/chosen" && : > "$_PLAN/kept" || exit 1
  for check_program in $programs; do
    need "$check_program"
  done
  for check_word in $kernel; do
    kernel_has "$check_word" || give_up "has a kernel without $check_word, which the disk layout $layout needs"
  done
  find_disks
  pass claim
  pass choose
  pass judge
}
