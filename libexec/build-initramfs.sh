#!/bin/sh
# build-initramfs.sh KERNELVERSION DRACUTMODULES OMITTED DRIVERS OMITTED: builds an image's initramfs from the
# image's own dracut or initramfs-tools and the node's scripts. The lists are words separated by blanks. Runs
# inside the image (enter-image.sh), and changes it in one place: /boot gets the complete new file.
#
# Standard output: "tool dracut", "kernel VERSION", "initrd PATH", or only "tool none"; lines "note TEXT" for
# the record. Everything else goes to standard error.
set -eu

kernel=$1
modules=$2
omitted_modules=$3
drivers=$4
omitted_drivers=$5
shared=/tmp/svc/dracut/90svc
built=/tmp/svc/initrd
config=''

exec 3>&1 1>&2
trap 'exit 143' TERM
# shellcheck source=SCRIPTDIR/../dracut/90svc/svc-contents.sh
. "$shared/svc-contents.sh"

tell() {
  printf '%s\n' "$*" >&3
}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# Finds the image's own program; busybox would prefer its applet.
locate() {
  for directory in /usr/sbin /usr/bin /sbin /bin; do
    if [ -x "$directory/$1" ]; then
      printf '%s' "$directory/$1"
      return 0
    fi
  done
  return 1
}

has() {
  locate "$1" > /dev/null
}

check_kernel() {
  if ! [ -d "/lib/modules/$kernel" ]; then
    fail "kernel $kernel is not in the image: it has no /lib/modules/$kernel"
  fi
}

check_programs() {
  missing=''
  for name in $svc_programs; do
    has "$name" || missing="$missing $name"
  done
  has curl || has wget || missing="$missing curl (or wget)"
  if [ -n "$missing" ]; then
    fail "the image lacks programs that a node needs to install itself:$missing"
  fi
  if ! has udhcpc && ! has dhclient && ! has dhcpcd && [ "$tool" = dracut ]; then
    tell 'note the image has no DHCP client (udhcpc, dhclient, dhcpcd): its nodes need fixed addresses'
  fi
}

# Keeps the drivers that this kernel has, as modules or built in.
known_drivers() {
  known=''
  modprobe=$(locate modprobe) || modprobe=modprobe
  for name in $drivers; do
    if "$modprobe" --set-version "$kernel" --dry-run --ignore-install --quiet "$name"; then
      known="$known $name"
    else
      tell "note kernel $kernel has no module $name"
    fi
  done
  drivers=${known# }
}

# Prints the path that the image's boot loader expects, so that the file also serves a boot from disk.
result_path() {
  for name in "initrd.img-$kernel" "initramfs-$kernel.img" "initrd-$kernel"; do
    if [ -e "/boot/$name" ]; then
      printf '/boot/%s' "$name"
      return
    fi
  done
  if [ -e /etc/debian_version ]; then
    printf '/boot/initrd.img-%s' "$kernel"
  elif grep -qs '^ID.*suse' /etc/os-release; then
    printf '/boot/initrd-%s' "$kernel"
  else
    printf '/boot/initramfs-%s.img' "$kernel"
  fi
}

with_dracut() {
  # dracut finds the node's scripts in a copy of its modules, which leaves the image unchanged.
  dracutbasedir=/tmp/svc/base
  cp -a /usr/lib/dracut "$dracutbasedir"
  rm -rf "$dracutbasedir/modules.d/90svc"
  cp -R "$shared" "$dracutbasedir/modules.d/90svc"
  export dracutbasedir
  dracut --force --no-hostonly --tmpdir /tmp --add "svc $modules" --omit "$omitted_modules" \
    --add-drivers "$drivers" --omit-drivers "$omitted_drivers" "$built" "$kernel"
}

with_initramfs_tools() {
  if [ -n "$modules$omitted_modules" ]; then
    tell "note the image has initramfs-tools: dracutmodules ($modules $omitted_modules) say nothing to it"
  fi
  if [ -n "$omitted_drivers" ]; then
    tell "note initramfs-tools cannot leave kernel modules out: $omitted_drivers"
  fi
  # A copy of the image's configuration, with our settings.
  configuration=/tmp/svc/configuration
  cp -a /etc/initramfs-tools "$configuration"
  mkdir -p "$configuration/hooks" "$configuration/scripts" "$configuration/conf.d"
  cp -R "$shared" "$configuration/svc"
  cp /tmp/svc/initramfs-tools/hooks/svc "$configuration/hooks/svc"
  cp /tmp/svc/initramfs-tools/scripts/svc "$configuration/scripts/svc"
  chmod 755 "$configuration/hooks/svc"
  # For any kind of machine, and without resuming from a hibernated disk.
  rm -f "$configuration/conf.d/resume"
  printf 'MODULES=most\nRESUME=none\n' > "$configuration/conf.d/zz-svc"
  SVC_KERNELMODULES=$drivers
  export SVC_KERNELMODULES
  # mkinitramfs reads from this file which compressions the kernel supports. An image made from a container
  # may have it beside the modules, or not at all; every distribution's kernel supports gzip.
  if ! [ -e "/boot/config-$kernel" ]; then
    config=/boot/config-$kernel
    trap 'rm -f "$config"' EXIT
    cp "/lib/modules/$kernel/config" "$config" 2>/dev/null || echo CONFIG_RD_GZIP=y > "$config"
  fi
  mkinitramfs -d "$configuration" -o "$built" "$kernel"
}

if has dracut; then
  tool=dracut
elif has mkinitramfs; then
  tool=initramfs-tools
else
  tell 'tool none'
  exit 0
fi
tell "tool $tool"
# A new directory at the top of the image would not be part of the image (hold-image.sh).
[ -d /boot ] || fail 'the image has no directory /boot, where its initramfs lies: make it, with mode 0755'
check_programs
check_kernel
known_drivers
case $tool in
  dracut) with_dracut ;;
  *) with_initramfs_tools ;;
esac
if ! [ -s "$built" ]; then
  fail "$tool ended well but made no initramfs"
fi

result=$(result_path)
rm -rf /boot/.svc-initrd.new
rm -f ${config:+"$config"}
trap 'rm -rf /boot/.svc-initrd.new' EXIT
cp "$built" /boot/.svc-initrd.new
chmod 600 /boot/.svc-initrd.new
mv -f /boot/.svc-initrd.new "$result"
tell "initrd ${result#/}"
