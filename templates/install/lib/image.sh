# The image: fetched to $_TMP/image, checked, unpacked.

# By the configured method, else by the fallback; each failure is shown on the console.
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
  download_by "$SVC_PROVISION_METHOD" && return 0
  log "method '$SVC_PROVISION_METHOD' failed, trying the fallback '$SVC_PROVISION_FALLBACK'"
  download_by "$SVC_PROVISION_FALLBACK"
}

download_by() {
  log "fetching $SVC_IMAGEFILE by '$1'"
  rm -rf "$_TMP/image" "$_TMP/torrent"
  case $1 in
    http) http_get "/files/$(url_segment "$SVC_IMAGEFILE")" "$_TMP/image" || return 1 ;;
    torrent) download_torrent || return 1 ;;
    *)
      complain "unknown provision method '$1'"
      return 1
      ;;
  esac
  if ! check_sum; then
    rm -f "$_TMP/image"
    return 1
  fi
}

download_torrent() {
  if [ -z "$SVC_TORRENT" ]; then
    complain 'the image has no torrent'
    return 1
  fi
  mkdir -p "$_TMP/torrent" || return 1
  if ! program aria2c >/dev/null && ! program transmission-cli >/dev/null; then
    complain 'neither aria2c nor transmission-cli is in this initramfs'
    return 1
  fi
  http_get "/files/$(url_segment "$SVC_TORRENT")" "$_TMP/image.torrent" || return 1
  if program aria2c >/dev/null; then
    watched "$_TMP/torrent" aria2c --dir="$_TMP/torrent" --seed-time=0 --bt-stop-timeout="$_STALL" \
      --enable-dht=false --enable-dht6=false --file-allocation=none --allow-overwrite=true \
      --summary-interval=0 --show-console-readout=false "$_TMP/image.torrent"
  else
    torrent_transmission
  fi
  torrent_status=$?
  if [ "$torrent_status" -eq 0 ] && [ -s "$_TMP/torrent/$SVC_IMAGEFILE" ] &&
    mv -f "$_TMP/torrent/$SVC_IMAGEFILE" "$_TMP/image"; then
    return 0
  fi
  complain "the torrent did not deliver $SVC_IMAGEFILE"
  return 1
}

# transmission-cli seeds for ever once it is done; its finish script tells our watch to end it.
torrent_transmission() {
  rm -f "$_TMP/torrent.done"
  printf '#!/bin/sh\ntouch %s/torrent.done %s/stop\n' "$_TMP" "$_TMP" > "$_TMP/torrent.sh"
  chmod 700 "$_TMP/torrent.sh"
  watched "$_TMP/torrent" transmission-cli -w "$_TMP/torrent" -f "$_TMP/torrent.sh" "$_TMP/image.torrent" \
    >/dev/null
  [ -e "$_TMP/torrent.done" ]
}

# A wrong checksum is never unpacked; an image without a known one is trusted to the transport.
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
  # Names of users here are not those of the image: numbers only, where this tar can.
  case $("$unpack_tar" --version 2>/dev/null) in
    *'GNU tar'*) set -- --numeric-owner --xattrs '--xattrs-include=*' --acls ;;
    *) set -- ;;
  esac
  if [ "$#" -eq 0 ]; then
    case $("$unpack_tar" --help 2>&1) in
      *--numeric-owner*) set -- --numeric-owner ;;
    esac
  fi
  rm -f "$_TMP/unpacked"
  {
    decompress "$unpack_program" < "$_TMP/image" && printf '' > "$_TMP/unpacked"
  } | "$unpack_tar" -x -p -f - -C "$_SYSTEMROOT" "$@"
  unpack_status=$?
  rm -f "$_TMP/image"
  if [ "$unpack_status" -ne 0 ] || ! [ -e "$_TMP/unpacked" ]; then
    complain "cannot unpack $SVC_IMAGEFILE"
    return 1
  fi
}

decompress() {
  case $1 in
    cat) cat ;;
    *) "$1" -dc ;;
  esac
}
