# A root that stays packed: a file system that is only read, under dm-verity, and an overlay that takes what is
# written, in memory. The file system is fetched whole, or streamed: nbdkit reads it by http for /dev/nbd0.

# It survives the change to the new root, unlike $_TMP and the directory of the node's side.
_ROOT=/run/svcroot

root_download() {
  # Too little memory may have been left by what an earlier run held.
  root_down && memory_limit || return 1
  root_needs veritysetup || return 1
  mkdir -p "$_ROOT/lower" "$_ROOT/upper" && chmod 700 "$_ROOT" || return 1
  root_image=$SVC_IMAGEFILE
  SVC_IMAGEFILE=$SVC_ROOT_FILE SVC_IMAGESUM=$SVC_ROOT_SUM SVC_IMAGESIZE=$SVC_ROOT_SIZE SVC_TORRENT=$SVC_ROOT_TORRENT
  download
  root_status=$?
  # By the tar's name svcd knows the pack.
  SVC_IMAGEFILE=$root_image
  return "$root_status"
}

root_needs() {
  program "$1" >/dev/null && return 0
  complain "$1 is not in this initramfs: install it in the image, and pack it"
  return 1
}

# Mounts the root. The file in memory lives as long as the loop device that veritysetup makes of it.
root_mount() {
  if mount_source "$_SYSTEMROOT" >/dev/null; then
    complain "$_SYSTEMROOT is mounted already: a root in the format $SVC_ROOT_FORMAT needs root_format tar there"
    return 1
  fi
  root_file=$_TMP/image
  modprobe -q -a loop dm_verity overlay "$SVC_ROOT_FORMAT" 2>/dev/null
  [ -e "$root_file" ] || root_cached
  # Without udev: no initramfs has to have its rules.
  root_said=$(DM_DISABLE_UDEV=1 veritysetup open --no-superblock --salt=- --hash=sha256 --data-block-size=4096 \
    --hash-block-size=4096 --data-blocks="$((SVC_ROOT_OFFSET / 4096))" --hash-offset="$SVC_ROOT_OFFSET" \
    "$root_file" svcroot "$root_file" "$SVC_ROOT_HASH" 2>&1)
  root_status=$?
  # A loop device in use goes with its last user.
  case $root_file in
    /dev/loop*) losetup -d "$root_file" 2>/dev/null ;;
  esac
  if [ "$root_status" -ne 0 ]; then
    complain "dm-verity refuses $SVC_ROOT_FILE: $(last_words "$root_said")"
    return 1
  fi
  if ! root_said=$(mount -t "$SVC_ROOT_FORMAT" -o ro /dev/mapper/svcroot "$_ROOT/lower" 2>&1); then
    complain "cannot mount $SVC_ROOT_FILE: $(last_words "$root_said"): it is another file, or the kernel has no driver"
    return 1
  fi
  root_room=$(memory_most)
  if [ "$root_room" -lt 65536 ]; then
    complain "too little memory: $((root_room / 1024)) MB are free for what the system writes, 64 MB are needed"
    return 1
  fi
  log "$SVC_ROOT_FILE is the root; what the system writes may take $((root_room / 1024)) MB of memory"
  if ! mount -t tmpfs -o "mode=0755,size=${root_room}k" svcroot "$_ROOT/upper" ||
    ! mkdir "$_ROOT/upper/upper" "$_ROOT/upper/work" || ! mount -t overlay -o \
    "lowerdir=$_ROOT/lower,upperdir=$_ROOT/upper/upper,workdir=$_ROOT/upper/work" svcroot "$_SYSTEMROOT"; then
    complain "cannot mount an overlay on $_SYSTEMROOT"
    return 1
  fi
  # The overlay holds both.
  umount "$_ROOT/lower" "$_ROOT/upper"
}

# Sets $root_file for a streamed root. squashfs reads its tables again and again: below a loop device, the kernel's page
# cache keeps what was read, and gives that memory back when programs need it.
root_cached() {
  root_file=/dev/nbd0
  if root_loop=$(losetup -f 2>/dev/null) && losetup -r "$root_loop" /dev/nbd0 2>/dev/null; then
    root_file=$root_loop
  else
    log 'without a loop device the root asks the controllers more often'
  fi
}

# Connects /dev/nbd0 to nbdkit, which asks for ever. It lives below $_ROOT with the files that it may open later.
root_stream() {
  for root_program in nbdkit nbd-client chroot; do
    root_needs "$root_program" || return 1
  done
  case ${_PINS:+pinned}:$SVC_URL in
    pinned:https:*)
      complain 'nbdkit cannot compare the key of a certificate (svc.pin): a root cannot be streamed'
      return 1
      ;;
  esac
  root_home=$_ROOT/stream
  mkdir -p "$root_home" && mount -t tmpfs -o mode=0700,size=64m svcstream "$root_home" && root_files && root_url || return 1
  modprobe -q nbd nbds_max=1 2>/dev/null
  (
    # Nobody in it knows a token, and nothing ends it: not systemd, because of the @, nor the lack of memory.
    unset SVC_TOKEN FILES_TOKEN
    echo -1000 > /proc/self/oom_score_adj
    root_chroot=$(program chroot)
    PATH=/usr/sbin
    exec "$root_chroot" "$root_home" @nbdkit -r -U /socket -P /pid --filter=retry curl \
      "url=$root_from/files/$(url_segment "$SVC_IMAGEFILE")" protocols=http,https followlocation=false \
      timeout=30 ${INSECURE:+sslverify=false} retries=1000000000 retry-delay=2 retry-exponential=no
  ) > "$_TMP/nbdkit" 2>&1
  persist 8 root_connect && return 0
  complain "the root cannot be streamed: $(last_words "$(cat "$_TMP/nbdkit")")"
  root_down
  return 1
}

# Without a time limit: it waits for controllers that are away.
root_connect() {
  nbd-client -unix "$root_home/socket" /dev/nbd0 -R >> "$_TMP/nbdkit" 2>&1 && [ -e /sys/block/nbd0/pid ]
}

# Copies what nbdkit needs: the loader of its libraries tells which. Networks by name need the resolver's files.
# One cp copies all files of a directory: a process for each of some 60 took seconds of a node's start.
root_files() {
  for root_plugin in /usr/lib/*/nbdkit/plugins/nbdkit-curl-plugin.so /usr/lib*/nbdkit/plugins/nbdkit-curl-plugin.so; do
    [ ! -f "$root_plugin" ] || break
  done
  root_filter=${root_plugin%/plugins/*}/filters/nbdkit-retry-filter.so
  root_nbdkit=$(program nbdkit)
  mkdir -p "$root_home/usr/sbin" "$root_home/dev" "$root_home/etc" "$root_home/tmp" &&
    cp -L "$root_nbdkit" "$root_home/usr/sbin/@nbdkit" && cp -a /dev/null "$root_home/dev/null" || return 1
  root_all=''
  root_directories=' '
  for root_file in $(LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD="$root_plugin:$root_filter" "$root_nbdkit" 2>/dev/null |
    sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p') /lib/*/libnss_[df]*.so.* /lib64/libnss_[df]*.so.* /etc/resolv.conf \
    /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/pki/tls/cert.pem; do
    [ -f "$root_file" ] || continue
    root_all="$root_all $root_file"
    case $root_directories in
      *" ${root_file%/*} "*) ;;
      *) root_directories="$root_directories${root_file%/*} " ;;
    esac
  done
  for root_directory in $root_directories; do
    set --
    for root_file in $root_all; do
      [ "${root_file%/*}" != "$root_directory" ] || set -- "$@" "$root_file"
    done
    if ! root_said=$(mkdir -p "$root_home$root_directory" 2>&1 && cp -L "$@" "$root_home$root_directory" 2>&1); then
      complain "nbdkit's files in $root_directory cannot be copied: $(last_words "$root_said")"
      return 1
    fi
  done
  if ! [ -f "$root_home$root_plugin" ] || ! [ -f "$root_home$root_filter" ]; then
    complain "nbdkit's plugin curl or its filter retry is not in this initramfs: install nbdkit-plugin-curl in the image"
    return 1
  fi
}

# Sets $root_from. Controllers that differ in their addresses alone get one name: curl asks the next address when one
# does not answer. A certificate that is checked has the name of one controller.
root_url() {
  root_from=$SVC_URL
  printf 'multi on\n' > "$root_home/etc/host.conf"
  printf 'hosts: files dns\n' > "$root_home/etc/nsswitch.conf"
  cat /etc/hosts > "$root_home/etc/hosts" 2>/dev/null
  case $SVC_URL in
    http://[0-9]*.[0-9]*.[0-9]*.[0-9]*) ;;
    *) return 0 ;;
  esac
  root_rest=${SVC_URL#http://}
  root_rest=${root_rest#"${root_rest%%[!0-9.]*}"}
  for root_each in $_URLS; do
    root_each=${root_each#http://}
    case $root_each in
      *[!0-9.]*"$root_rest" | [0-9]*"$root_rest") root_address=${root_each%"$root_rest"} ;;
      *) continue ;;
    esac
    case $root_address in
      *[!0-9.]*) log "$root_each is not asked for the root: only its address may differ from that of $SVC_URL" ;;
      *) printf '%s svcd-controllers\n' "$root_address" >> "$root_home/etc/hosts" ;;
    esac
  done
  root_from=http://svcd-controllers$root_rest
}
