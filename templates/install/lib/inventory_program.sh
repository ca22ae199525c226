# /etc/svc/inventory [--root DIR] [--print]: reports what this machine is made of, from sysfs, /proc and DMI
# (docs/inventory.md). It is installed behind the functions of http.sh, text.sh and settings.sh. With --print
# it prints the report of an installation; else it sends the report of a boot, as /etc/svc/inventory.conf says.
set -u
umask 077
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

log() {
  printf 'svc-inventory: %s\n' "$*" >&2
}

complain() {
  log "$*"
}

# shellcheck disable=SC2317 # json_string calls it
program() {
  command -v "$1"
}

# add NAME JSON: adds a member to the JSON object that is being made.
add() {
  object="$object${object:+,}\"$1\":$2"
}

add_text() {
  case $2 in
    '') ;;
    *[!A-Za-z0-9\ ._:/,@=+-]*) add "$1" "$(json_string "$(printf '%.128s' "$2")")" ;;
    *) add "$1" "\"$(printf '%.128s' "$2")\"" ;;
  esac
}

add_number() {
  case $2 in
    '' | *[!0-9]* | 0?* | ????????????????*) ;;
    *) add "$1" "$2" ;;
  esac
}

# Reads the first line of a file into $line, without blanks around it. Fails when there is none.
line_of() {
  line=''
  { read -r line < "$1"; } 2>/dev/null
  [ -n "$line" ]
}

add_line() {
  line_of "$2" && add_text "$1" "$line"
}

add_flag() {
  case $2 in
    *0) add "$1" false ;;
    *1) add "$1" true ;;
  esac
}

add_driver() {
  line=$(readlink "$1/driver")
  add_text driver "${line##*/}"
}

# Moves the object to the list, unless the list gets longer than $1 bytes: a node sends 64 KiB at most.
entry() {
  if [ "$(printf '%s' "$list$object" | wc -c)" -lt "$1" ]; then
    list="$list${list:+,}{$object}"
  fi
  object=''
}

# Moves the object to the report, or the list.
section() {
  if [ -n "$object" ]; then
    report="$report,\"$1\":{$object}"
    object=''
  fi
}

section_list() {
  report="$report,\"$1\":[$list]"
  list=''
}

system() {
  dmi=$root/sys/class/dmi/id
  tree=$root/proc/device-tree
  add_line maker "$dmi/sys_vendor"
  add_line product "$dmi/product_name"
  add_line serial "$dmi/product_serial"
  add_line uuid "$dmi/product_uuid"
  add_line asset "$dmi/chassis_asset_tag"
  # The texts of a device tree end in a NUL.
  [ -d "$dmi" ] || add_text product "$(tr -d '\000' 2>/dev/null < "$tree/model")"
  [ -d "$dmi" ] || add_text serial "$(tr -d '\000' 2>/dev/null < "$tree/serial-number")"
  section system
  add_line vendor "$dmi/bios_vendor"
  add_line version "$dmi/bios_version"
  add_line date "$dmi/bios_date"
  if [ -d "$root/sys/firmware/efi" ]; then
    add mode '"uefi"'
    # The value stands behind four bytes of attributes.
    tree=$root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
    add_flag secure_boot "$(od -An -v -tu1 -j4 -N1 "$tree" 2>/dev/null)"
  elif [ -n "$object" ]; then
    add mode '"bios"'
  fi
  section firmware
}

# Prints how many different lines a file of all CPUs' topology has. The kernel sends it only as a whole.
topology() {
  cat "$root"/sys/devices/system/cpu/cpu[0-9]*/topology/"$1" 2>/dev/null | sort -u | grep -c .
}

cpu() {
  info=$root/proc/cpuinfo
  add_text model "$(sed -n 's/^model name[[:space:]]*: *//p' "$info" 2>/dev/null | head -n 1 | tr -s ' ')"
  # Others than x86 have numbers in its place.
  [ -n "$object" ] || add_text model "$(sed -n -e 's/^CPU \(implementer\)[[:space:]]*:/\1/p' \
    -e 's/^CPU \(part\)[[:space:]]*:/\1/p' "$info" 2>/dev/null | head -n 2 | tr '\n' ' ' | sed 's/ $//')"
  cores=$(topology thread_siblings_list)
  if [ "$cores" -gt 0 ]; then
    add sockets "$(topology core_siblings_list)"
    add cores "$cores"
  fi
  add_number threads "$(grep -c '^processor' "$info" 2>/dev/null)"
  section cpu
}

# Prints text $1 of a DMI structure as the inside of a JSON string, without words that stand for nothing.
dmi_text() {
  if [ "$1" -lt 1 ] || [ "$1" -ge "$number" ]; then
    return 0
  fi
  eval "text=\$text_$1"
  while [ "$text" != "${text% 32}" ]; do
    text=${text% 32}
  done
  # shellcheck disable=SC2086 # a word for each byte
  text=$(json_bytes $text)
  text=${text#\"}
  case ${text%\"} in
    'Not Specified' | 'Not Available' | 'NO DIMM' | Unknown | UNKNOWN | None) ;;
    *) printf '%s' "${text%\"}" ;;
  esac
}

add_dmi() {
  text=$(dmi_text "$2")
  [ -z "$text" ] || add "$1" "\"$text\""
}

# Adds a memory slot, whose bytes are $byte_0 and so on. 65535 is an unknown size, with 32767 it stands elsewhere.
# shellcheck disable=SC2154
slot() {
  bank=$(dmi_text "$byte_17")
  add slot "\"$bank${bank:+ }$(dmi_text "$byte_16")\""
  size=$((byte_12 + byte_13 * 256))
  if [ "$size" -eq 32767 ] && [ "$length" -gt 31 ]; then
    add size "$(((byte_28 + byte_29 * 256 + byte_30 * 65536) * 1048576))"
  elif [ "$size" -lt 65535 ]; then
    add size "$((size % 32768 * (size < 32768 ? 1048576 : 1024)))"
  fi
  if [ "$size" -gt 0 ] && [ "$length" -gt 26 ]; then
    case $byte_18 in
      7) add type '"RAM"' ;;
      24) add type '"DDR3"' ;;
      26) add type '"DDR4"' ;;
      30) add type '"LPDDR4"' ;;
      31) add type '"non-volatile"' ;;
      32 | 33 | 36) add type '"HBM"' ;;
      34) add type '"DDR5"' ;;
      35) add type '"LPDDR5"' ;;
    esac
    speed=$((byte_21 + byte_22 * 256))
    [ "$speed" -eq 0 ] || [ "$speed" -eq 65535 ] || add speed "$speed"
    add_dmi maker "$byte_23"
    add_dmi serial "$byte_24"
    add_dmi part "$byte_26"
  fi
  entry 12000
}

# Reads the memory slots, type 17 of the DMI table. A structure is its type, its length and as many bytes as
# that says; then its texts, each with a NUL behind it, and one more NUL (two without texts).
slots() {
  offset=0 type=0 length=4
  for byte in $(od -An -v -tu1 -N 131072 "$root/sys/firmware/dmi/tables/DMI" 2>/dev/null); do
    if [ "$offset" -lt "$length" ]; then
      case $type:$offset in
        *:0) type=$byte length=4 number=1 text='' count=0 ;;
        *:1) length=$((byte < 4 ? 4 : byte)) ;;
        17:*) eval "byte_$offset=$byte" ;;
      esac
    elif [ "$byte" -ne 0 ]; then
      count=$((count + 1))
      [ "$type" -ne 17 ] || [ "$count" -gt 64 ] || text="$text $byte"
    elif [ "$count" -gt 0 ]; then
      [ "$type" -ne 17 ] || eval "text_$number=\$text"
      number=$((number + 1)) text='' count=0
    elif [ "$number" -eq 1 ]; then
      number=0
    else
      [ "$type" -ne 17 ] || [ "$length" -lt 21 ] || slot
      offset=-1 length=4
    fi
    offset=$((offset + 1))
  done
}

memory() {
  slots
  [ -z "$list" ] || add slots "[$list]"
  list=''
  total=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "$root/proc/meminfo" 2>/dev/null)
  [ -z "$total" ] || add_number total "$((total * 1024))"
  section memory
}

# Prints how a disk is connected.
transport() {
  case $1:$(cd -P "$root/sys/block/$1/device" 2>/dev/null && pwd) in
    nvme*) echo nvme ;;
    vd*) echo virtio ;;
    xvd*) echo xen ;;
    mmcblk*) echo mmc ;;
    */usb[0-9]*) echo usb ;;
    */ata[0-9]*) echo sata ;;
    */session[0-9]*) echo iscsi ;;
    */rport-*) echo fc ;;
    */end_device-* | */port-*) echo sas ;;
    *) echo scsi ;;
  esac
}

# Whether a block device is a disk of the machine: a device is behind it, and its medium stays.
is_disk() {
  case ${1##*/} in
    sr[0-9]* | fd[0-9]* | mmcblk*boot[0-9] | mmcblk*rpmb) return 1 ;;
  esac
  for flag in removable hidden; do
    ! line_of "$1/$flag" || [ "$line" = 0 ] || return 1
  done
  [ -e "$1/device" ] && line_of "$1/size" && [ "$line" != 0 ]
}

disks() {
  ids=''
  for path in "$root"/dev/disk/by-id/*; do
    case $path in
      *-part[0-9]*) ;;
      *) target=$(readlink "$path") && ids="$ids ${target##*/}=$(json_string "${path##*/}")" ;;
    esac
  done
  for path in "$root"/sys/block/*; do
    is_disk "$path" || continue
    name=${path##*/}
    add_text name "$name"
    add_number size "$((line * 512))"
    add_line model "$path/device/model"
    # Page 80 of the vital product data of SCSI: four bytes, and the serial number.
    add_line serial "$path/device/serial" || add_line serial "$path/serial" ||
      add_text serial "$(tail -c +5 "$path/device/vpd_pg80" 2>/dev/null | tr -d '\000 ')"
    line_of "$path/queue/rotational" && add_flag rotational "$line"
    add_text transport "$(transport "$name")"
    add_line health "$path/device/state"
    found='' count=0
    for id in $ids; do
      case $count:$id in
        [0-5]:"$name="*) found="$found${found:+,}${id#*=}" count=$((count + 1)) ;;
      esac
    done
    [ -z "$found" ] || add by_id "[$found]"
    entry 30000
  done
  section_list disks
}

# A device is behind a card or port, and it is no virtual function of another one.
interfaces() {
  for path in "$root"/sys/class/net/*; do
    if ! [ -e "$path/device" ] || [ -L "$path/device/physfn" ]; then
      continue
    fi
    add_text name "${path##*/}"
    # In a bond it has the address of the bond.
    add_line mac "$path/bonding_slave/perm_hwaddr" || add_line mac "$path/address"
    add_driver "$path/device"
    line_of "$path/speed" && add_number speed "$line"
    line_of "$path/carrier" && add_flag link "$line"
    entry 7500
  done
  section_list interfaces
}

# PCI devices that are cards: storage, network, display, processors, InfiniBand, accelerators.
pci() {
  for path in "$root"/sys/bus/pci/devices/*; do
    line_of "$path/class"
    case $(readlink "$path/physfn")$line in
      0x01* | 0x02* | 0x03* | 0x0b4* | 0x0c06* | 0x12*) ;;
      *) continue ;;
    esac
    add_text address "${path##*/}"
    line=${line#0x}
    add_text class "${line%??}"
    line_of "$path/vendor" && add_text vendor "${line#0x}"
    line_of "$path/device" && add_text device "${line#0x}"
    add_driver "$path"
    entry 11000
  done
  section_list pci
}

# Public keys of the ssh server, for known_hosts. A key of RSA is longer than a text may be.
host_keys() {
  for type in ed25519 ecdsa; do
    if read -r kind key _ < "$root/etc/ssh/ssh_host_${type}_key.pub"; then
      list="$list${list:+,}$(json_string "$kind $key")"
    fi 2>/dev/null
  done
  [ -z "$list" ] || section_list host_keys
}

# Prints the report. $1: installation or boot.
inventory() {
  object='' list='' report=''
  system
  cpu
  memory
  disks
  interfaces
  pci
  add_line version "$root/sys/class/tpm/tpm0/tpm_version_major"
  section tpm
  # An initramfs has others than the system.
  [ "$1" = installation ] || host_keys
  add_line kernel "$root/proc/sys/kernel/osrelease"
  printf '{"source":"%s"%s%s}' "$1" "$report" "${object:+,$object}"
}

# Prints the seconds since the kernel started, whatever sets the clock.
uptime_s() {
  sed 's/[. ].*//' /proc/uptime
}

# Sends the report, once systemd is done with the boot: disks may come late. A refusal would come again.
send() {
  if ! settings; then
    log "$conf is missing or does not name url, node and token: the installation writes it"
    return 0
  fi
  end=$(($(uptime_s) + 300))
  while [ "$(uptime_s)" -lt "$end" ] && systemctl is-system-running 2>/dev/null | grep -q -e initializing -e starting; do
    sleep 1
  done
  _TMP=$(mktemp -d /var/tmp/svc-inventory.XXXXXX || mktemp -d /tmp/svc-inventory.XXXXXX) || return 1
  trap 'rm -rf "$_TMP"' 0
  trap 'exit 1' HUP INT TERM
  _STALL=60 _LONGEST=60
  # The process list would show busybox's argument with the token.
  if ! find_http || [ "$_HTTP" = busybox ]; then
    log 'neither curl nor GNU wget can be found'
  elif http_post "/monitor/inventory/$(url_segment "$node")" "$(inventory boot)"; then
    renew_token
  else
    [ "${http_code#4}" != "$http_code" ]
  fi
}

root=''
if [ "${1:-}" = --root ]; then
  root=$2
  shift 2
fi
conf=$root/etc/svc/inventory.conf
if [ "${1:-}" = --print ]; then
  inventory installation
else
  send
fi
