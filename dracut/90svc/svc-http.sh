# shellcheck shell=sh
# Requests to the controllers, by curl or else wget (GNU or busybox). The initramfs, the installation and
# svc-files on the running system all have this text: templates/install/lib/http.sh is a link to it. It needs
# the functions log and complain, and these variables:
#
#   SVC_URL _URLS  the current controller; all of them, the current one first, with blanks between them
#   SVC_TOKEN      the node's token; none where it is empty
#   INSECURE       -k accepts a certificate that cannot be verified
#   SVC_PIN        SHA-256 sums of public keys in hex, between commas: a certificate counts only with one of
#                  these keys, and then needs no authority (rules 15.10)
#   _TMP           a directory for files that only root can read
#   _STALL         seconds without a byte, after which a request is given up
#   _LONGEST       seconds for a whole request, if it has a limit
#   _PATIENCE      seconds to wait for busy controllers: an hour if it is not set

# Prints the last line of an output as a reason: short, without control characters.
last_words() {
  printf '%.200s' "$(printf '%s\n' "$1" | sed '/^[[:space:]]*$/d' | tail -n 1 | tr -d '\000-\037\177')"
}

# Sets $_HTTP to the program that makes the requests.
find_http() {
  pin_keys
  if command -v curl >/dev/null; then
    _HTTP=curl
    return
  fi
  case $(command -v wget && wget --version 2>/dev/null) in
    '')
      complain 'neither curl nor wget can be found'
      return 1
      ;;
    *'GNU Wget'*) _HTTP=gnu ;;
    *) _HTTP=busybox ;;
  esac
}

# Sets $_PINS to the sums of $SVC_PIN in the form of curl and GNU wget.
pin_keys() {
  _PINS=''
  pins_left=${SVC_PIN:-}
  while [ -n "$pins_left" ]; do
    pin_hex=${pins_left%%,*}
    case $pins_left in
      *,*) pins_left=${pins_left#*,} ;;
      *) pins_left='' ;;
    esac
    pin_base64=$(
      while [ -n "$pin_hex" ]; do
        # shellcheck disable=SC2059 # the format is one byte
        printf "\\$(printf %03o "0x${pin_hex%"${pin_hex#??}"}")"
        pin_hex=${pin_hex#??}
      done | base64
    )
    _PINS="${_PINS:+$_PINS;}sha256//$pin_base64"
  done
}

# Prints the options of curl or wget for the check of certificates: a pinned key replaces the authorities.
check_options() {
  case $1:${_PINS:-} in
    curl:?*) printf '%s' "-k --pinnedpubkey $_PINS" ;;
    wget:?*) printf '%s' "--no-check-certificate --pinnedpubkey=$_PINS" ;;
    curl:) printf '%s' "${INSECURE:-}" ;;
    wget:) printf '%s' "${INSECURE:+--no-check-certificate}" ;;
  esac
}

# settings_text URLS NODE TOKEN INSECURE: prints the settings of a program that stays on the node (settings.sh).
settings_text() {
  printf 'url %s\nnode %s\ntoken %s\ninsecure %s\n' "$@" || return 1
  [ -z "${SVC_PIN:-}" ] || printf 'pin %s\n' "$SVC_PIN"
}

# Writes the node's token to a file, as the process list shows arguments.
http_secret() {
  if [ -s "$_TMP/http" ] || [ -z "${SVC_TOKEN:-}" ]; then
    return 0
  fi
  case $_HTTP in
    curl) http_quote='"' ;;
    *) http_quote='' ;;
  esac
  http_header="header = ${http_quote}x-access-tokens: $SVC_TOKEN$http_quote"
  (umask 077 && printf '%s\n' "$http_header" > "$_TMP/http") && return 0
  rm -f "$_TMP/http"
  http_cause="$_TMP/http cannot be written"
  return 1
}

# Runs a command that writes below $1, and ends it after $_STALL seconds without a write or $_LONGEST
# seconds: a dead connection would hold the node forever. Busybox wget of Debian 12 dies of its -T.
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
    printf 'nothing came for %s s%s\n' "$_STALL" "${_LONGEST:+, or not all in $_LONGEST s}" >&2
  fi
  return "$watched_status"
}

watch_growth() {
  growth_last=none
  growth_idle=0
  growth_age=0
  while kill -0 "$2"; do
    growth_now=$(du -sk "$1")
    if [ "$growth_now" != "$growth_last" ]; then
      growth_last=$growth_now
      growth_idle=0
    fi
    if [ "$growth_idle" -ge "$_STALL" ] || [ "$growth_age" -gt "${_LONGEST:-$growth_age}" ]; then
      kill "$2"
    fi
    growth_idle=$((growth_idle + 1))
    growth_age=$((growth_age + 1))
    sleep 1
  done
}

# http_request URL FILE [BODY]: asks once, by GET or with a JSON body by POST; the body @NAME is in a file. The
# answer goes to FILE, its head to $_TMP/head. After a failure $http_cause says why, and $http_code is the
# status if there is one.
http_request() {
  http_url=$1
  http_file=$2
  http_code=''
  shift 2
  case $_HTTP:${_PINS:+pinned}:$http_url in
    busybox:pinned:https:*)
      http_cause='busybox wget cannot compare the key of a certificate: install curl in the image'
      return 1
      ;;
  esac
  http_secret || return 1
  printf '' > "$_TMP/head"
  if [ "$_HTTP" = curl ]; then
    http_curl "$@"
  else
    http_wget "$@"
  fi
  case $http_status:$http_code:$_HTTP in
    0:2??:curl | 0:*:gnu | 0:*:busybox) return 0 ;;
    # Busybox wget has its own line for a refusal.
    *:[345]??:curl | *:[345]??:gnu) http_cause="the controller answered $http_code$(refusal "$http_file")" ;;
    *) http_cause=$(last_words "$http_said") ;;
  esac
  # GNU wget says nothing of a cut answer.
  http_cause=${http_cause:-the answer was cut}
  return 1
}

http_curl() {
  if [ "$#" -gt 0 ]; then
    set -- -H 'Content-Type: application/json' -X POST --data-binary "$1"
  fi
  # A .curlrc and brackets in a URL must not change the request. Below 1000 bytes/s is a stall.
  # shellcheck disable=SC2046 # words
  http_said=$(curl -q -g -s -S $(check_options curl) ${SVC_TOKEN:+-K "$_TMP/http"} --connect-timeout 20 \
    --speed-limit 1000 --speed-time "$_STALL" ${_LONGEST:+--max-time "$_LONGEST"} -D "$_TMP/head" \
    -o "$http_file" -w '\n%{http_code}' "$@" "$http_url" 2>&1)
  http_status=$?
  http_code=${http_said##*[!0-9]}
  http_said=${http_said%???}
}

# Busybox wget takes the token only as an argument, and follows redirects. A head may have no end.
http_wget() {
  if [ "$#" -gt 0 ]; then
    case $1 in
      @*) set -- "--post-file=${1#@}" ;;
      *) set -- "--post-data=$1" ;;
    esac
    set -- --header 'Content-Type: application/json' "$1"
  fi
  case $_HTTP in
    # It would wait for the body of an answer without one, on a kept connection.
    gnu)
      set -- -nv --tries=1 --max-redirect=0 --content-on-error --no-http-keep-alive \
        ${SVC_TOKEN:+"--config=$_TMP/http"} "$@"
      ;;
    *) set -- -q ${SVC_TOKEN:+--header "x-access-tokens: $SVC_TOKEN"} "$@" ;;
  esac
  http_said=$({
    # shellcheck disable=SC2046 # words
    watched "$http_file" wget -S $(check_options wget) -O "$http_file" "$@" "$http_url"
    echo "$?" > "$_TMP/status"
  } 2>&1 | head -c 65536)
  read -r http_status < "$_TMP/status" || http_status=1
  case $http_status:$_HTTP:$http_said in
    0:*' '[Ll]'ocation: '*) http_said='it redirects' http_status=1 ;;
    0:busybox:* | 0:*HTTP/[0-9]*' 2'[0-9][0-9]*) ;;
    0:*) http_said='it is not http' http_status=1 ;;
  esac
  printf '%s\n' "$http_said" > "$_TMP/head"
  if [ "$http_status" -eq 0 ]; then
    return
  fi
  http_code=$(sed -n 's|^.*HTTP/[0-9.]* \([0-9]\{3\}\).*$|\1|p' "$_TMP/head" | tail -n 1)
  http_said=$(sed '/^ /d' "$_TMP/head")
}

# Prints a refusal's message after a colon.
refusal() {
  refusal_message=$(answer_text message "$1")
  printf '%s' "${refusal_message:+: $refusal_message}"
}

# answer_text FIELD FILE: prints a field of a JSON answer, short and without control characters.
answer_text() {
  head -c 16384 "$2" 2>/dev/null | tr '\n' ' ' |
    sed -n -E "s/^.*\"$1\"[[:space:]]*:[[:space:]]*\"(([^\"\\\\]|\\\\.)*)\".*\$/\\1/p" |
    sed -e 's/\\"/"/g' -e 's/\\n/ /g' -e 's/\\\\/\\/g' | cut -c 1-400 | tr -d '\000-\037\177'
}

# ask_controllers COMMAND PATH ...: runs a command that asks $SVC_URL, and again with the next controller
# while it ends with 1. The one that answers is asked first from then on. $http_causes names all failures.
ask_controllers() {
  asked_first=$SVC_URL
  http_causes=''
  until "$@"; do
    asked_status=$?
    asked_last=$SVC_URL
    http_causes="${http_causes:+$http_causes; }$SVC_URL$2: $http_cause"
    if [ "$asked_status" -ne 1 ]; then
      return "$asked_status"
    fi
    case $_URLS in
      *' '*) _URLS="${_URLS#* } $SVC_URL" ;;
    esac
    SVC_URL=${_URLS%% *}
    if [ "$SVC_URL" = "$asked_first" ]; then
      return 1
    fi
    log "$asked_last: $http_cause; trying $SVC_URL"
  done
}

# Repeats a command that ends with 1, after pauses of 1, 2, 4 ... $1 s: a restarting controller is back soon.
persist() {
  persist_longest=$1
  persist_pause=1
  shift
  until "$@"; do
    if [ "$?" -ne 1 ] || [ "$persist_pause" -gt "$persist_longest" ]; then
      return 1
    fi
    sleep "$persist_pause"
    persist_pause=$((persist_pause * 2))
  done
}

# http_get PATH FILE: asks all controllers, again while one is busy (503 with Retry-After). An incomplete
# file is removed.
http_get() {
  http_waited=0
  http_pause=''
  until ask_controllers http_get_one "$@"; do
    if [ -z "$http_pause" ] || [ "$http_waited" -ge "${_PATIENCE:-3600}" ]; then
      complain "cannot fetch $http_causes"
      return 1
    fi
    log "the controller is busy, next try in $http_pause s"
    sleep "$http_pause"
    http_waited=$((http_waited + http_pause))
    http_pause=''
  done
}

# The installation prints why there is no room for a download (memory.sh).
# shellcheck disable=SC2317
no_room() {
  :
}

http_get_one() {
  http_request "$SVC_URL$1" "$2" && return 0
  http_full=$(no_room)
  rm -f "$2"
  if [ -n "$http_full" ]; then
    # Another controller's copy would not fit either.
    http_cause="${http_full#: }: $http_cause"
    http_pause=''
    return 2
  fi
  if [ "$http_code" = 503 ]; then
    http_wait=$(sed -n 's/^ *[Rr]etry-[Aa]fter: *\([1-9][0-9]\{0,2\}\)[[:space:]]*$/\1/p' "$_TMP/head" | tail -n 1)
    http_pause=${http_wait:-$http_pause}
  fi
  return 1
}

# http_post PATH BODY: sends JSON, twice, or for 15 s with several controllers until another takes over.
http_post() {
  case $_URLS in
    *' '*) http_longest=8 ;;
    *) http_longest=1 ;;
  esac
  persist "$http_longest" ask_controllers http_post_one "$@" && return 0
  printf 'svc: %s\n' "$http_cause" >&2
  return 1
}

# Posts to one controller. A 4xx counts as an answer: the others would give it too.
http_post_one() {
  http_request "$SVC_URL$1" /dev/null "$2" && return 0
  case $_URLS:$http_code in
    *' '*:4??) return 2 ;;
  esac
  return 1
}
