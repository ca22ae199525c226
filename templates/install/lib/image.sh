# The image is fetched to $_TMP/image, checked, and unpacked.

# Fetches the image by the configured method, else by the fallback. The console shows each failure.
download() {
  case $SVC_IMAGEFILE in
    '')
      complain "OS image $SVC_OSIMAGE has no packed image file"
      return 1
      ;;
    */*)
      complain "image file name $SVC_IMAGEFILE holds a slash"
      return 1
      ;;
  esac
  # A script may have mounted a disk there, which lifts the memory limit.
  if [ "$(mount_source "$_TMP")" != svctmp ]; then
    memory_size=''
  fi
  [ "$SVC_PROVISION_METHOD" = stream ] || download_fits || return 1
  # Not every image has a torrent: the fallback is then the plan, not a failure.
  download_method=$SVC_PROVISION_METHOD
  if [ "$download_method:$SVC_TORRENT" = torrent: ]; then
    download_method=$SVC_PROVISION_FALLBACK
  fi
  download_by "$download_method" && return 0
  download_first=$(cat "$_TMP/reason" 2>/dev/null)
  log "method '$download_method' failed, trying the fallback '$SVC_PROVISION_FALLBACK'"
  download_by "$SVC_PROVISION_FALLBACK" && return 0
  if [ "$download_method" != "$SVC_PROVISION_FALLBACK" ]; then
    complain "$download_method: $download_first; $SVC_PROVISION_FALLBACK: $(cat "$_TMP/reason" 2>/dev/null)"
  fi
  return 1
}

# Whether the packed image fits into memory. Its size is known if svcd packed it.
download_fits() {
  download_size=$((SVC_IMAGESIZE / 1024))
  if [ -z "$memory_size" ] || [ "$download_size" -le "$memory_size" ]; then
    return 0
  fi
  complain "too little memory: $SVC_IMAGEFILE has $((download_size / 1024)) MB," \
    "$((memory_size / 1024)) MB are free for it"
  return 1
}

download_by() {
  log "fetching $SVC_IMAGEFILE by '$1'"
  rm -rf "$_TMP/image" "$_TMP/torrent"
  case $1 in
    http) http_get "/files/$(url_segment "$SVC_IMAGEFILE")" "$_TMP/image" || return 1 ;;
    torrent) download_torrent || return 1 ;;
    stream)
      root_stream
      return
      ;;
    *)
      complain "unknown provision method '$1'"
      return 1
      ;;
  esac
  if ! check_sum; then
    # Other nodes must not get a wrong image from this one either.
    end_seeding
    rm -f "$_TMP/image"
    return 1
  fi
}

# Fetches the image by torrent. The node seeds from the first piece until the run ends, also while it unpacks.
# So the controller sends an image only a few times, however many nodes there are.

# The process that fetches and then seeds; empty if there is none.
_SEEDER=''
# After a failed torrent the nodes spread their requests over this many seconds.
_SPREAD=10

download_torrent() {
  if [ -z "$SVC_TORRENT" ]; then
    complain 'the image has no torrent'
    return 1
  fi
  torrent_program=''
  for torrent_candidate in aria2c transmission-cli; do
    if [ -z "$torrent_program" ] && program "$torrent_candidate" >/dev/null; then
      torrent_program=$torrent_candidate
    fi
  done
  if [ -z "$torrent_program" ]; then
    complain 'neither aria2c nor transmission-cli is in this initramfs'
    return 1
  fi
  mkdir -p "$_TMP/torrent" || return 1
  rm -f "$_TMP/torrent.done"
  http_get "/files/$(url_segment "$SVC_TORRENT")" "$_TMP/image.torrent" || return 1
  # Both programs call this script when the image is complete, and go on seeding.
  printf '#!/bin/sh\ntouch %s/torrent.done\n' "$_TMP" > "$_TMP/torrent.sh"
  chmod 700 "$_TMP/torrent.sh"
  trap seeder_exit 0
  "torrent_${torrent_program%%-*}" &
  _SEEDER=$!
  # A hard link, not a copy: the seeder goes on using the first name.
  if torrent_complete && [ -s "$_TMP/torrent/$SVC_IMAGEFILE" ] &&
    ln "$_TMP/torrent/$SVC_IMAGEFILE" "$_TMP/image"; then
    return 0
  fi
  torrent_full=$(no_room)
  end_seeding
  complain "the torrent did not deliver $SVC_IMAGEFILE$torrent_full: $torrent_why"
  # A failure here has probably hit the other nodes too.
  sleep "$(node_number "$_SPREAD")"
  return 1
}

# aria2c ends with this script, however the script ends. Without allocation and cache, the size on disk shows
# the progress. aria2c asks UDP trackers only with its DHT on. The DHT knows no other peer here, and private
# torrents do not use it.
torrent_aria2c() {
  case $(head -c 40 "$_TMP/image.torrent") in
    d8:announce*:udp://*) torrent_udp=true ;;
    *) torrent_udp=false ;;
  esac
  # Peers can make it use more and more memory. It needs a fifth of this.
  # shellcheck disable=SC3045 # The shells of dracut and initramfs-tools know -v.
  ulimit -v 524288 2>/dev/null || :
  exec aria2c --no-conf --dir="$_TMP/torrent" --stop-with-process="$$" --seed-ratio=0.0 \
    --on-bt-download-complete="$_TMP/torrent.sh" --bt-tracker-interval=30 --bt-tracker-timeout=10 \
    --bt-tracker-connect-timeout=10 --enable-dht="$torrent_udp" --dht-file-path="$_TMP/torrent.dht" \
    --enable-dht6=false --bt-enable-lpd=false --enable-peer-exchange=false --file-allocation=none \
    --disk-cache=0 --allow-overwrite=true --summary-interval=0 --show-console-readout=false \
    --console-log-level=warn "$_TMP/image.torrent"
}

# transmission-cli takes these settings only from a file. With uTP it learns late that aria2c speaks TCP.
torrent_transmission() {
  mkdir -p "$_TMP/torrent.conf" &&
    printf '{ %s,%s,%s }\n' '"preallocation":0,"cache-size-mb":0,"utp-enabled":false,"rpc-enabled":false' \
      '"dht-enabled":false,"pex-enabled":false,"lpd-enabled":false' '"port-forwarding-enabled":false' \
      > "$_TMP/torrent.conf/settings.json" &&
    exec transmission-cli -g "$_TMP/torrent.conf" -w "$_TMP/torrent" -f "$_TMP/torrent.sh" \
      "$_TMP/image.torrent" >/dev/null
}

# Waits for the complete image. Fails if the program ends, or if nothing arrives for $_STALL seconds.
torrent_complete() {
  torrent_last=none
  torrent_idle=0
  torrent_why="$torrent_program has no whole image"
  while ! [ -e "$_TMP/torrent.done" ]; do
    if ! kill -0 "$_SEEDER" 2>/dev/null; then
      torrent_why="$torrent_program ended"
      return 1
    fi
    torrent_now=$(du -sk "$_TMP/torrent")
    if [ "$torrent_now" != "$torrent_last" ]; then
      torrent_last=$torrent_now
      torrent_idle=0
    elif [ "$torrent_idle" -ge "$_STALL" ]; then
      torrent_why="nothing came by torrent for $_STALL s"
      return 1
    fi
    torrent_idle=$((torrent_idle + 1))
    sleep 1
  done
}

# Ends the seeding, if any, and frees its memory. After SIGINT the programs get some seconds to leave the
# tracker, which would otherwise send other nodes to this one.
end_seeding() {
  if [ -n "$_SEEDER" ]; then
    kill -INT "$_SEEDER" 2>/dev/null
    seeder_left=5
    while [ "$seeder_left" -gt 0 ] && kill -0 "$_SEEDER" 2>/dev/null; do
      seeder_left=$((seeder_left - 1))
      sleep 1
    done
    kill -9 "$_SEEDER" 2>/dev/null
    wait "$_SEEDER" 2>/dev/null
    _SEEDER=''
  fi
  rm -rf "$_TMP/torrent"
}

# Ends the seeding, then does what on_exit does.
seeder_exit() {
  seeder_status=$?
  end_seeding
  (exit "$seeder_status")
  on_exit
}

# Prints a number below $1 from the last three digits of the node's name, to spread the nodes.
node_number() {
  node_digits=000${SVC_NODE##*[!0-9]}
  printf '%s' "$((1${node_digits#"${node_digits%???}"} % $1))"
}

# An image with a wrong checksum is never unpacked. Without a known checksum, the transport is trusted.
check_sum() {
  if [ -z "$SVC_IMAGESUM" ]; then
    log 'warning: the checksum of the image is not known'
    return 0
  fi
  if program sha256sum >/dev/null; then
    sum_found=$(sha256sum < "$_TMP/image")
    sum_found=${sum_found%% *}
  elif program openssl >/dev/null; then
    sum_found=$(openssl dgst -sha256 -r < "$_TMP/image")
    sum_found=${sum_found%% *}
  else
    complain 'neither sha256sum nor openssl is in this initramfs: the image cannot be checked'
    return 1
  fi
  if [ "$sum_found" != "$SVC_IMAGESUM" ]; then
    complain "wrong checksum of $SVC_IMAGEFILE: $sum_found instead of $SVC_IMAGESUM"
    return 1
  fi
}

unpack() {
  case $SVC_IMAGEFILE in
    *.tar) unpack_program='cat' ;;
    *.tar.gz | *.tgz) unpack_program=gzip ;;
    *.tar.bz2) unpack_program=bzip2 ;;
    *.tar.xz) unpack_program=xz ;;
    *.tar.zst) unpack_program=zstd ;;
    *)
      complain "$SVC_IMAGEFILE has no suffix that can be unpacked"
      return 1
      ;;
  esac
  if ! program "$unpack_program" >/dev/null; then
    complain "$unpack_program is not in this initramfs"
    return 1
  fi
  unpack_tar=$(program tar)
  # This initramfs has other users than the image, so tar takes owners as numbers if it can. ACLs come as
  # extended attributes, also as numbers; tar's own form of ACLs names users.
  case $("$unpack_tar" --version 2>/dev/null) in
    *'GNU tar'*) set -- --numeric-owner --xattrs '--xattrs-include=*' --warning=no-timestamp ;;
    *) set -- ;;
  esac
  if [ "$#" -eq 0 ]; then
    case $("$unpack_tar" --help 2>&1) in
      *--numeric-owner*) set -- --numeric-owner ;;
    esac
  fi
  memory_image || return 1
  rm -f "$_TMP/decompressed" "$_TMP/unpacked" "$_TMP/links"
  # The first lines give the cause: on a full disk, tar prints a line per file. A hard link between two file
  # systems of the partscript is impossible; it becomes a copy later.
  unpack_said=$(
    {
      { decompress "$unpack_program" < "$_TMP/image" && printf '' > "$_TMP/decompressed"; } |
        { "$unpack_tar" -x -p -f - -C "$_SYSTEMROOT" "$@" && printf '' > "$_TMP/unpacked"; }
    } 2>&1 | sed -n -e '/^[[:space:]]*$/d' -e "/: Cannot hard link to '.*': Invalid cross-device link\$/{" \
      -e "w $_TMP/links" -e d -e '}' -e p | sed -n 1,20p
  )
  rm -f "$_TMP/image"
  if [ -s "$_TMP/links" ] && [ "${unpack_said#*: }" = 'Exiting with failure status due to previous errors' ]; then
    unpack_said=''
    copy_links < "$_TMP/links" && printf '' > "$_TMP/unpacked"
  fi
  if [ -n "$unpack_said" ]; then
    printf '%s\n' "$unpack_said"
  fi
  if ! [ -e "$_TMP/unpacked" ] || ! [ -e "$_TMP/decompressed" ]; then
    unpack_said=$(last_words "$(printf '%s\n' "$unpack_said" | sed -n 1p)")
    case $unpack_said in
      *'Operation not permitted' | *': Cannot open: File exists')
        unpack_said="$unpack_said: is it immutable? Let the partscript make the file system anew, or chattr -R -i -a what is there"
        ;;
      *": can't create hardlink '"*) unpack_said="$unpack_said: hard links across file systems need GNU tar in the image" ;;
    esac
    complain "cannot unpack $SVC_IMAGEFILE$(memory_full "$_SYSTEMROOT" "$unpack_room")${unpack_said:+: $unpack_said}"
    return 1
  fi
  # The booting system may use more from here on.
  [ -z "$unpack_room" ] || memory_root 75%
}

# Limits the memory of the unpacked image, beside that of the packed one.
memory_image() {
  unpack_room=''
  if [ "$(mount_source "$_SYSTEMROOT")" != svcroot ]; then
    return 0
  fi
  unpack_room=$(memory_most)
  memory_packed=$(($(wc -c < "$_TMP/image") / 1024))
  if [ "$memory_packed" -gt "$unpack_room" ]; then
    complain "unpacking $SVC_IMAGEFILE needs more than $((memory_packed / 1024)) MB of memory," \
      "there are $((unpack_room / 1024)) MB"
    return 1
  fi
  memory_root "${unpack_room}k"
}

memory_root() {
  mount -t tmpfs -o "remount,mode=0755,size=$1" svcroot "$_SYSTEMROOT" && return 0
  complain "cannot limit $_SYSTEMROOT to $1"
  return 1
}

# Copies the files of impossible hard links, from lines: tar: NAME: Cannot hard link to 'TARGET': ....
copy_links() {
  links_count=0
  while IFS= read -r links_line; do
    links_new=${links_line#*: }
    links_old=${links_new#*": Cannot hard link to '"}
    links_new=$(unquote "${links_new%%": Cannot hard link to '"*}x")
    links_old=$(unquote "${links_old%"': Invalid cross-device link"}x")
    if ! links_to=$(image_path "/${links_new%x}") || ! links_from=$(image_path "/${links_old%x}") ||
      ! rm -f "$links_to" || ! cp -a "$links_from" "$links_to"; then
      unpack_said="the hard link ${links_new%x} leads to another file system, and ${links_old%x} cannot be copied there"
      return 1
    fi
    links_count=$((links_count + 1))
  done
  log "hard links to another file system, which are copies now: $links_count, such as $(last_words "${links_new%x}")"
}

# Prints a text without the escapes of GNU tar.
unquote() {
  printf '%b' "$(printf '%s' "$1" | sed -e 's,\\\\,\\/,g' -e 's,\\\([0-7][0-7][0-7]\),\\0\1,g' \
    -e "s,\\\\\([:']\),\\1,g" -e 's,\\/,\\\\,g')"
}

decompress() {
  case $1 in
    cat) cat ;;
    *) "$1" -dc ;;
  esac
}
