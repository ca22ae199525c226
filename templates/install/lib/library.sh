# Most functions are the same for all nodes. They come in a file of their own, named by its checksum, so that
# machines and caches share it.

# library SHA256: fetches that file and reads it, in up to five tries, like this script.
library() {
  if ! program sha256sum >/dev/null && ! program openssl >/dev/null; then
    complain 'neither sha256sum nor openssl is in this initramfs: the functions of this script cannot be checked'
    return 1
  fi
  library_pause=1
  # A cache on the way may hold damaged text, so later tries use other names.
  library_try=''
  until library_get "$1" "$library_try"; do
    if [ "$library_pause" -gt 8 ]; then
      return 1
    fi
    sleep "$library_pause"
    library_try="?try=$library_pause"
    library_pause=$((library_pause * 2))
  done
  _LIBRARY=''
  # shellcheck source=/dev/null
  . "$_TMP/library"
  # Its last line sets this: some shells go on after an error.
  if [ "$_LIBRARY" != whole ]; then
    complain "$SVC_URL/boot/library/$1 is not a script that can be read"
    return 1
  fi
  rm -f "$_TMP/library"
}

library_get() {
  http_get "/boot/library/$1$2" "$_TMP/library" || return 1
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
