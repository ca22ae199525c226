# shellcheck shell=sh
# Fetches the node's install script with curl, or else with wget (busybox or GNU).

# Tries several times within one step, so that a restart of the controller is not a failure.
fetch_script() {
  set_clock
  fetch_pause=1
  until fetch_from_any; do
    if [ "$fetch_pause" -gt 8 ]; then
      _REASON="$fetch_url cannot be fetched: $_REASON"
      return 1
    fi
    sleep "$fetch_pause"
    fetch_pause=$((fetch_pause * 2))
  done
}

# Certificates have a validity period, and a machine with an empty battery may be years off. So before the
# first https request the clock is set to a controller's time if it is more than a minute off. That time is
# not authenticated, so the clock is never set to before this initramfs was built.
set_clock() {
  case "$SVC_URL $SVC_OTHERS:$SVC_INSECURE" in
    *https://*:) ;;
    *) return ;;
  esac
  set -f
  for clock_url in $SVC_URL $SVC_OTHERS; do
    # shellcheck disable=SC2046 # words: day, month, year, time
    set -- $(clock_ask "$clock_url/version" 2>&1 |
      sed -n 's/^[[:space:]]*[Dd]ate: [A-Z][a-z]*, \([0-3][0-9] [A-Z][a-z][a-z] [0-9]\{4\} [0-9:]\{8\}\) GMT.*$/\1/p' |
      tail -n 1)
    [ "$#" -ne 4 ] || break
  done
  set +f
  clock_months=JanFebMarAprMayJunJulAugSepOctNovDec
  clock_before=${clock_months%%"${2:-none}"*}
  if [ "$#" -ne 4 ] || [ "$clock_before" = "$clock_months" ]; then
    return
  fi
  clock_wanted="$3-$(printf %02d $((${#clock_before} / 3 + 1)))-$1 $4"
  clock_seconds=$(date -u -d "$clock_wanted" +%s 2> /dev/null) || return 0
  clock_off=$((clock_seconds - $(date -u +%s)))
  if [ "${clock_off#-}" -le 60 ]; then
    return
  fi
  if [ "$clock_seconds" -lt "$(stat -c %Y "$_LIB/svc-fetch.sh")" ]; then
    say "warning: $clock_url says that it is $clock_wanted, before this initramfs was built: the clock stays"
  elif date -u -s "$clock_wanted" > /dev/null; then
    say "the clock was ${clock_off#-} s off: it is set to $clock_wanted UTC, as $clock_url says"
  fi
}

# Prints the headers of an answer, whatever the certificate.
clock_ask() {
  if program curl; then
    curl -q -g -s -k -I --connect-timeout 10 --max-time 20 "$1"
  else
    within 20 wget -S --no-check-certificate -O /dev/null "$1"
  fi
}

# Tries each controller in turn.
fetch_from_any() {
  set -f
  # shellcheck disable=SC2086 # a list of words
  set -- "$SVC_URL" $SVC_OTHERS
  set +f
  for fetch_from in "$@"; do
    fetch_url=$fetch_from/boot/install/$SVC_NODE
    if fetch_once; then
      SVC_URL=$fetch_from
      return 0
    fi
    say "$fetch_url: $_REASON"
  done
  return 1
}

fetch_once() {
  rm -f "$_RUN/install"
  : > "$_RUN/error"
  # The script contains the node's token.
  umask 077
  if program curl; then
    fetch_curl
  elif program wget; then
    fetch_wget
  else
    umask 022
    _REASON='neither curl nor wget is in this initramfs'
    return 1
  fi
  fetch_status=$?
  umask 022
  if [ "$fetch_status" -ne 0 ]; then
    rm -f "$_RUN/install"
    return 1
  fi
  # A proxy may have answered with a page of its own.
  fetch_line=''
  IFS= read -r fetch_line 2>/dev/null < "$_RUN/install"
  case $fetch_line in
    '#!'*) ;;
    *)
      _REASON="the answer is no script, it begins with '$(printable "$fetch_line")'"
      return 1
      ;;
  esac
}

fetch_curl() {
  # A .curlrc and brackets in a URL must not change the request. With other controllers, a stalled one is
  # given up sooner.
  if ! fetch_code=$(curl -q -g -s -S ${SVC_INSECURE:+-k} --connect-timeout 15 --max-time 120 \
    ${SVC_OTHERS:+--speed-limit 1 --speed-time 20} -o "$_RUN/install" -w '%{http_code}' "$fetch_url" \
    2> "$_RUN/error"); then
    _REASON=$(printable "$(cat "$_RUN/error")")
    return 1
  fi
  if [ "$fetch_code" != 200 ]; then
    _REASON="the controller answered $fetch_code$(answered)"
    return 1
  fi
}

fetch_wget() {
  case $(wget --version 2>/dev/null) in
    # By default GNU wget would try 20 times, and drop the controller's reason for a refusal.
    *'GNU Wget'*) set -- --tries=1 --content-on-error ;;
    *) set -- ;;
  esac
  # Not with wget -T: the wget of busybox in Debian 12 ends with a segmentation fault then.
  if ! within 60 wget "$@" ${SVC_INSECURE:+--no-check-certificate} -O "$_RUN/install" "$fetch_url" \
    2> "$_RUN/error"; then
    _REASON="$(wget_error)$(answered)"
    return 1
  fi
}

# Runs a command, and kills it after $1 seconds.
within() {
  within_seconds=$1
  shift
  "$@" &
  within_child=$!
  (sleep "$within_seconds" && kill "$within_child") > /dev/null 2>&1 &
  within_guard=$!
  wait "$within_child"
  within_status=$?
  kill "$within_guard" 2> /dev/null
  wait "$within_guard" 2> /dev/null
  return "$within_status"
}

# Prints the error from the last lines of wget: "wget: server returned error: HTTP/1.1 401 Unauthorized" of
# busybox, "HTTP request sent, awaiting response... 401 Unauthorized" or "Connecting to 10.1.1.1:80... failed:
# ..." of GNU wget.
wget_error() {
  wget_line=$(sed -n -e 's/^wget: //p' \
    -e 's/^.*awaiting response\.\.\. \([45]\)/the controller answered \1/p' \
    -e 's/^.* \(failed: .*\)$/\1/p' "$_RUN/error" | tail -n 1)
  if [ -z "$wget_line" ] && [ "$within_status" -gt 128 ]; then
    wget_line='the answer did not arrive within 60 s'
  fi
  printable "wget: ${wget_line:-$(tail -n 1 "$_RUN/error")}"
}

# Prints the `message` of the controller's JSON answer after a colon.
answered() {
  if ! [ -s "$_RUN/install" ]; then
    return
  fi
  answer=$(tr '\n' ' ' < "$_RUN/install" |
    sed -n -E 's/^.*"message"[[:space:]]*:[[:space:]]*"(([^"\\]|\\.)*)".*$/\1/p' |
    sed -e 's/\\"/"/g' -e 's/\\n/ /g' -e 's/\\\\/\\/g')
  if [ -n "$answer" ]; then
    printf ': %s' "$(printable "$answer")"
  fi
}
