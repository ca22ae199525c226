# Most functions are the same for all nodes. They come in a file of their own, which is named by its checksum, so that
# machines and caches share it.

# library SHA256: fetches that file and reads it. It is tried five times, as this script was.
library() {
  if ! program sha256sum >/dev/null && ! program openssl >/dev/null; then
    complain 'neither sha256sum nor openssl is in this initramfs: the functions of this script cannot be checked'
    return 1
  fi
  library_pause=1
  until library_get "$1"; do
    if [ "$library_pause" -gt 8 ]; then
      return 1
    fi
    sleep "$library_pause"
    library_pause=$((library_pause * 2))
  done
  # shellcheck source=/dev/null
  . "$_TMP/library"
  rm -f "$_TMP/library"
}

library_get() {
  http_get "/boot/library/$1" "$_TMP/library" || return 1
  if program sha256sum >/dev/null; then
    library_sum=$(sha256sum < "$_TMP/library")
  else
    library_sum=$(openssl dgst -sha256 -r < "$_TMP/library")
  fi
  if [ "${library_sum%% *}" != "$1" ]; then
    complain "wrong checksum of $SVC_URL/boot/library/$1: ${library_sum%% *}"
    return 1
  fi
}
