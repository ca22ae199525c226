# Requests to the controller, by curl where it is there, else by wget (busybox or GNU). Only an answer
# 2xx whose whole body arrived is a success.

find_http() {
  _CURL=$(program curl) || _CURL=''
  if [ -z "$_CURL" ] && ! program wget >/dev/null; then
    complain 'neither curl nor wget is in this initramfs'
    return 1
  fi
  # GNU wget would try 20 times; busybox tries once and has no such option.
  case $(wget --version 2>/dev/null) in
    *'GNU Wget'*) _TRIES=--tries=1 ;;
    *) _TRIES='' ;;
  esac
}

# Runs a command that writes below the path $1, and ends it when nothing was written for $_STALL seconds,
# or when the file $_TMP/stop appears. Without it a dead connection would hold the node for ever.
watched() {
  watched_path=$1
  shift
  rm -f "$_TMP/stop"
  "$@" &
  watched_child=$!
  watch_growth "$watched_path" "$watched_child" >/dev/null 2>&1 &
  watched_guard=$!
  wait "$watched_child"
  watched_status=$?
  kill "$watched_guard" 2>/dev/null
  wait "$watched_guard" 2>/dev/null
  return "$watched_status"
}

watch_growth() {
  growth_last=none
  growth_idle=0
  while kill -0 "$2"; do
    growth_now=$(du -sk "$1")
    if [ -e "$_TMP/stop" ]; then
      kill "$2"
    elif [ "$growth_now" != "$growth_last" ]; then
      growth_last=$growth_now
      growth_idle=0
    elif [ "$growth_idle" -ge "$_STALL" ]; then
      kill "$2"
    fi
    growth_idle=$((growth_idle + 1))
    sleep 1
  done
}

http_curl() {
  # A .curlrc and brackets in a URL must not change what is asked for.
  http_code=$("$_CURL" -q -g -s -S ${INSECURE:+"$INSECURE"} --connect-timeout 20 --speed-limit 1 \
    --speed-time "$_STALL" -w '%{http_code}' -H "x-access-tokens: $SVC_TOKEN" "$@") || return 1
  case $http_code in
    2??) return 0 ;;
  esac
  printf 'svc: the controller answered %s\n' "$http_code" >&2
  return 1
}

http_wget() {
  http_file=$1
  shift
  watched "$http_file" wget -q ${_TRIES:+"$_TRIES"} ${INSECURE:+--no-check-certificate} -O "$http_file" \
    --header "x-access-tokens: $SVC_TOKEN" "$@"
}

# GET a path below the controller's URL into a file; a file that did not arrive whole is removed.
http_get() {
  if [ -n "$_CURL" ]; then
    http_curl -o "$2" "$SVC_URL$1" && return 0
  else
    http_wget "$2" "$SVC_URL$1" && return 0
  fi
  rm -f "$2"
  complain "cannot fetch $SVC_URL$1"
  return 1
}

# POST a JSON body to a path below the controller's URL; asked twice, as a restarting controller is back
# within a moment.
http_post() {
  http_post_once "$@" && return 0
  sleep 1
  http_post_once "$@"
}

http_post_once() {
  if [ -n "$_CURL" ]; then
    http_curl -o /dev/null -H 'Content-Type: application/json' -X POST --data-raw "$2" "$SVC_URL$1"
  else
    http_wget /dev/null --header 'Content-Type: application/json' --post-data "$2" "$SVC_URL$1"
  fi
}
