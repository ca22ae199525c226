# Files in memory. Without swap, files that outgrow the memory cause a kernel panic, so each of our file
# systems in memory has a size.

# Prints a value of /proc/meminfo in kilobytes.
memory_kilobytes() {
  while read -r memory_name memory_value _; do
    if [ "$memory_name" = "$1:" ]; then
      printf '%s' "$memory_value"
    fi
  done < /proc/meminfo
}

# Prints how many kilobytes files in memory may take now.
memory_room() {
  memory_free=$(($(memory_kilobytes MemAvailable) - _RESERVE))
  printf '%s' "$((memory_free > 0 ? memory_free : 0))"
}

# Prints how many kilobytes a root may take now.
memory_most() {
  memory_free=$(memory_room)
  memory_share=$(($(memory_kilobytes MemTotal) * 3 / 4))
  printf '%s' "$((memory_free < memory_share ? memory_free : memory_share))"
}

# Mounts a memory file system on $_TMP. The initramfs may be a ramfs, which has no limit.
memory_files() {
  if ! mount_source "$_TMP" >/dev/null && ! mount -t tmpfs -o mode=0700 svctmp "$_TMP"; then
    complain "cannot mount a tmpfs on $_TMP"
    return 1
  fi
}

# Sets the size of $_TMP. $memory_size holds it in kilobytes; empty if a disk was mounted there.
memory_limit() {
  memory_size=''
  if [ "$(mount_source "$_TMP")" != svctmp ]; then
    return 0
  fi
  memory_size=$(memory_room)
  if [ "$memory_size" -lt 1024 ]; then
    complain "too little memory: $(($(memory_kilobytes MemAvailable) / 1024)) MB are available, of which" \
      "$((_RESERVE / 1024)) MB stay free"
    return 1
  fi
  if ! mount -t tmpfs -o "remount,mode=0700,size=${memory_size}k" svctmp "$_TMP"; then
    complain "cannot limit $_TMP to $((memory_size / 1024)) MB"
    return 1
  fi
}

# memory_full DIRECTORY KILOBYTES: prints a reason if the directory is full, as not every program reports it.
# KILOBYTES is its size in memory, or empty for a disk.
memory_full() {
  if ! { printf ' ' > "$1/.svc-new"; } 2>/dev/null; then
    printf ': no space is left on %s' "$1"
    [ -z "$2" ] || printf ', %s MB of memory' "$(($2 / 1024))"
  fi
  rm -f "$1/.svc-new"
}

# Replaces the function of http.sh.
no_room() {
  memory_full "$_TMP" "$memory_size"
}
