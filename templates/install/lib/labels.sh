# SELinux labels for what was written into the image. A file that replaced another one has no label, and a system that
# enforces labels could not read it.

labels_wanted() {
  labels_config=$_SYSTEMROOT/etc/selinux/config
  if ! [ -f "$labels_config" ] || [ -L "$labels_config" ] || ! image_program setfiles; then
    return 1
  fi
  labels_type=''
  while IFS='=' read -r labels_key labels_value || [ -n "$labels_key" ]; do
    case $labels_key=$labels_value in
      SELINUX=disabled*) return 1 ;;
      SELINUXTYPE=*[!A-Za-z0-9_-]*) ;;
      SELINUXTYPE=*) labels_type=$labels_value ;;
    esac
  done < "$labels_config"
  labels_file=/etc/selinux/$labels_type/contexts/files/file_contexts
  [ -n "$labels_type" ] && [ -f "$_SYSTEMROOT$labels_file" ]
}

labels() {
  chroot_mount || return 1
  set -- -e /dev -e /proc -e /sys -e /run
  # An EFI system partition holds no labels.
  while read -r _ labels_directory labels_fs _; do
    case $labels_directory:$labels_fs in
      "$_SYSTEMROOT"/*:ext[234] | "$_SYSTEMROOT"/*:xfs | "$_SYSTEMROOT"/*:btrfs | "$_SYSTEMROOT"/*:tmpfs) ;;
      "$_SYSTEMROOT"/*) set -- "$@" -e "$(printf '%b' "${labels_directory#"$_SYSTEMROOT"}")" ;;
    esac
  done < /proc/mounts
  # -m: the initramfs mounts without labels, but the file systems can hold them.
  in_image setfiles -m "$@" "$labels_file" / || log 'warning: setfiles failed: SELinux labels may be missing'
  chroot_unmount
}
