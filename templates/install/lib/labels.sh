# SELinux labels for files written into the image. A file that replaced another one has no label, and a system
# that enforces labels could not read it.

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

# A file system in memory keeps labels only if the kernel has a policy, so the image's own is loaded. It is
# not enforced before the image starts, as its configuration says.
labels_policy() {
  labels_root=''
  while read -r _ labels_directory labels_fs _; do
    if [ "$labels_directory" = "$_SYSTEMROOT" ]; then
      labels_root=$labels_fs
    fi
  done < /proc/mounts
  case $labels_root:$(ls -d /sys/fs/selinux 2>/dev/null) in
    tmpfs:?* | overlay:?*) ;;
    *) return 0 ;;
  esac
  if in_image load_policy -i; then
    printf 0 > "$_SYSTEMROOT/sys/fs/selinux/enforce"
  else
    log 'warning: load_policy failed: files in memory have no SELinux labels'
  fi
}

labels() {
  chroot_mount || return 1
  labels_policy
  set -- -e /dev -e /proc -e /sys -e /run
  # An EFI system partition holds no labels.
  while read -r _ labels_directory labels_fs _; do
    case $labels_directory:$labels_fs in
      "$_SYSTEMROOT"/*:ext[234] | "$_SYSTEMROOT"/*:xfs | "$_SYSTEMROOT"/*:btrfs | "$_SYSTEMROOT"/*:tmpfs) ;;
      "$_SYSTEMROOT"/*) set -- "$@" -e "$(printf '%b' "${labels_directory#"$_SYSTEMROOT"}")" ;;
    esac
  done < /proc/mounts
  # -m: file systems are mounted without labels in the initramfs, but can hold them.
  in_image setfiles -m "$@" "$labels_file" / || log 'warning: setfiles failed: SELinux labels may be missing'
  chroot_unmount
}
