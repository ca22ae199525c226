# Requests to the controller, by curl or else wget (busybox or GNU). A request succeeds if the answer is 2xx
# and its whole body arrives.

find_http() {
  _CURL=$(program curl) || _CURL=''
  if [ -z "$_CURL" ] && ! program wget >/dev/null; then
    complain 'neither curl nor wget is in this initramfs'
    return 1
  fi
  # GNU wget has more options than busybox's.
  case $(wget --version 2>/dev/null) in
    *'GNU Wget'*) _WGET=gnu ;;
    *) _WGET=busybox ;;
  esac
}

# Writes the node's token to a file for curl and GNU wget, as the process list shows arguments.
http_secret() {
  if [ -s "$_TMP/http" ]; then
    return 0
  fi
  if [ -n "$_CURL" ]; then
    http_quote='"'
  else
    http_quote=''
  fi
  (umask 077 && printf 'header = %sx-access-tokens: %s%s\n' "$http_quote" "$SVC_TOKEN" "$http_quote" > "$_TMP/http") &&
    return 0
  rm -f "$_TMP/http"
  http_cause="$_TMP/http cannot be written"
  return 1
}

# Runs a command that writes below the path $1, and ends it after $_STALL seconds without a write: a dead
# connection would hold the node forever.
watched() {
  watched_path=$1
  shift
  "$@" &
  watched_child=$!
  watch_growth "$watched_path" "$watched_child" >/dev/null 2>&1 &
  watched_guard=$!
  wait "$watched_child"
  watched_status=$?
  kill "$watched_guard" 2>/dev/null
  wait "$watched_guard" 2>/dev/null
  if [ "$watched_status" -eq 143 ]; then
    printf 'nothing came for %s s\n' "$_STALL" >&2
  fi
  return "$watched_status"
}

watch_growth() {
  growth_last=none
  growth_idle=0
  while kill -0 "$2"; do
    growth_now=$(du -sk "$1")
    if [ "$growth_now" != "$growth_last" ]; then
      growth_last=$growth_now
      growth_idle=0
    elif [ "$growth_idle" -ge "$_STALL" ]; then
      kill "$2"
    fi
    growth_idle=$((growth_idle + 1))
    sleep 1
  done
}

# http_curl and http_wget make one request. After a failure $http_cause says why.
http_curl() {
  http_secret || return 1
  # A .curlrc and brackets in a URL must not change the request. Below 1000 bytes/s counts as a stall.
  http_said=$("$_CURL" -q -g -s -S ${INSECURE:+"$INSECURE"} -K "$_TMP/http" --connect-timeout 20 \
    --speed-limit 1000 --speed-time "$_STALL" -D "$_TMP/head" -w '\n%{http_code}' "$@" 2>&1)
  http_status=$?
  http_code=$(last_words "$http_said")
  case $http_status:$http_code in
    0:2??) return 0 ;;
    0:*) http_cause="the controller answered $http_code" ;;
    *) http_cause=$(last_words "${http_said%???}") ;;
  esac
  return 1
}

# Busybox wget takes the token only as an argument.
http_wget() {
  http_file=$1
  shift
  case $_WGET in
    gnu)
      http_secret || return 1
      set -- -nv --tries=1 --config="$_TMP/http" "$@"
      ;;
    *) set -- -q --header "x-access-tokens: $SVC_TOKEN" "$@" ;;
  esac
  http_said=$(watched "$http_file" wget ${INSECURE:+--no-check-certificate} -O "$http_file" "$@" 2>&1) && return 0
  http_cause=$(last_words "$http_said")
  return 1
}

# Runs a command that asks the controller $SVC_URL, and repeats it with the next controller while it ends with
# 1. The first one that answers is asked first from then on.
ask_controllers() {
  asked_first=$SVC_URL
  while :; do
    "$@"
    asked_status=$?
    if [ "$asked_status" -ne 1 ]; then
      return "$asked_status"
    fi
    asked_last=$SVC_URL
    case $_URLS in
      *' '*) _URLS="${_URLS#* } $SVC_URL" ;;
    esac
    SVC_URL=${_URLS%% *}
    if [ "$SVC_URL" = "$asked_first" ]; then
      return 1
    fi
    log "$asked_last: ${http_cause:-no answer}; trying $SVC_URL"
  done
}

# GET a path below the controller's URL into a file below $_TMP; an incomplete file is removed. Other
# controllers are asked after a failure. A busy one (503 with Retry-After) is asked again for an hour.
http_get() {
  http_waited=0
  http_pause=''
  http_causes=''
  until ask_controllers http_get_one "$@"; do
    if [ -z "$http_pause" ] || [ "$http_waited" -ge 3600 ]; then
      complain "cannot fetch $http_causes"
      return 1
    fi
    log "the controller is busy, next try in $http_pause s"
    sleep "$http_pause"
    http_waited=$((http_waited + http_pause))
    http_pause=''
    http_causes=''
  done
}

# Asks one controller. After a failure $http_causes adds why.
http_get_one() {
  http_get_once "$@" && return 0
  http_full=$(memory_full "$_TMP" "$memory_size")
  rm -f "$2"
  http_wait=$(retry_after)
  http_pause=${http_wait:-$http_pause}
  http_causes="${http_causes:+$http_causes; }$SVC_URL$1$http_full${http_cause:+: $http_cause}"
  if [ -n "$http_full" ]; then
    # Another controller's copy would not fit either.
    http_pause=''
    return 2
  fi
  return 1
}

# The head of the answer goes to $_TMP/head. Busybox wget does not show the head of a refusal.
http_get_once() {
  rm -f "$_TMP/head"
  if [ -n "$_CURL" ]; then
    http_curl -o "$2" "$SVC_URL$1" && return 0
    # The body of a refusal says why.
    case $http_cause in
      'the controller answered '*) http_cause=$http_cause$(refusal "$2") ;;
    esac
    return 1
  fi
  http_wget "$2" -S "$SVC_URL$1" && return 0
  printf '%s\n' "$http_said" > "$_TMP/head"
  return 1
}

# Prints the message of a refusal after a colon.
refusal() {
  sed -n 's/,"code":"[a-z-]*"}$/}/; s/^{"message":"\(.*\)"}$/: \1/p' "$1" 2>/dev/null | cut -c 1-300 | tr -d '\000-\037\177'
}

# Prints the seconds to wait if the last answer was a 503 that says so.
retry_after() {
  case $http_cause in
    *503*) sed -n 's/^ *[Rr]etry-[Aa]fter: *\([0-9]\{1,3\}\)[[:space:]]*$/\1/p' "$_TMP/head" 2>/dev/null | tail -n 1 ;;
  esac
}

# POST a JSON body to a path below the controller's URL. It is tried twice, because a restarting controller is
# back soon. With several controllers it is tried for 15 s, until another one takes over.
http_post() {
  case $_URLS in
    *' '*) http_longest=8 ;;
    *) http_longest=1 ;;
  esac
  http_pause=1
  until ask_controllers http_post_one "$@"; do
    if [ "$asked_status" -eq 2 ] || [ "$http_pause" -gt "$http_longest" ]; then
      printf 'svc: %s\n' "$http_cause" >&2
      return 1
    fi
    sleep "$http_pause"
    http_pause=$((http_pause * 2))
  done
}

# Posts to one controller. A 4xx counts as an answer: the others would give it too.
http_post_one() {
  http_post_once "$@" && return 0
  case $_URLS:$http_cause in
    *' '*' answered 4'* | *' '*'HTTP/1.'?' 4'* | *' '*'ERROR 4'* | *' '*'Authentication Failed'*) return 2 ;;
  esac
  return 1
}

http_post_once() {
  if [ -n "$_CURL" ]; then
    http_curl -o /dev/null -H 'Content-Type: application/json' -X POST --data-raw "$2" "$SVC_URL$1"
  else
    http_wget /dev/null --header 'Content-Type: application/json' --post-data "$2" "$SVC_URL$1"
  fi
}
