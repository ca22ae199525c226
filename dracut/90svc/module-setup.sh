#!/bin/bash
# dracut's module for nodes of svcd (root=svc). An initramfs gets it only on request: dracut --add svc.
# shellcheck disable=SC2154 # dracut's variables

# shellcheck source=SCRIPTDIR/svc-contents.sh
. "${moddir:-${BASH_SOURCE[0]%/*}}/svc-contents.sh"

check() {
  # shellcheck disable=SC2086 # lists of words
  require_binaries $svc_programs || return 1
  # shellcheck disable=SC2086
  require_any_binary $svc_fetchers || return 1
  return 255
}

depends() {
  echo base kernel-modules rootfs-block udev-rules
}

installkernel() {
  local directory added
  # shellcheck disable=SC2086 # lists of words
  hostonly='' instmods $svc_modules
  for directory in $svc_module_directories; do
    hostonly='' instmods "=$directory"
  done
  added=$(svc_added_modules "${srcmods:-/lib/modules/$kernel}")
  # Without names instmods reads them from its standard input.
  if [[ $added ]]; then
    # shellcheck disable=SC2086
    hostonly='' instmods $added
  fi
}

install() {
  local file libraries part
  # shellcheck disable=SC2086 # lists of words
  inst_multiple $svc_programs
  # shellcheck disable=SC2086
  inst_multiple -o $svc_fetchers $svc_optional
  # udev cannot rename an interface that stays up for the root: it gets its last name here.
  for file in $svc_files /usr/share/xfsprogs/mkfs/* {/usr/lib,/etc}/systemd/network/*.link; do
    if [[ -f $file ]]; then
      inst_simple "$file"
    fi
  done
  # The list has several lines, and its patterns are for dracut.
  read -r -d '' -a libraries <<< "$svc_libraries"
  inst_libdir_file "${libraries[@]}"
  # dracut looks for the libraries of executable files alone, and Debian's plugins are none.
  for file in /usr/lib/*/nbdkit/plugins/nbdkit-curl-plugin.so; do
    if [[ -f $file ]]; then
      # shellcheck disable=SC2046 # a list of words
      inst_multiple $(ldd "$file" | sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p')
    fi
  done
  for part in $svc_parts; do
    inst_script "$moddir/svc-$part.sh" "/usr/lib/svc/svc-$part.sh"
  done
  mkdir -p "$initdir/etc/svc"
  svc_seal_lacks '' > "$initdir/etc/svc/seal-lacks"
  inst_hook cmdline 90 "$moddir/svc-cmdline.sh"
  inst_hook pre-mount 90 "$moddir/svc-pre-mount.sh"
}
