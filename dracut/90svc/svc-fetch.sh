# shellcheck shell=sh disable=SC2034,SC2154 # variables of svc-http.sh
# Fetches the node's install script.

# Gets ready for requests to the controllers.
prepare_requests() {
  INSECURE=${SVC_INSECURE:+-k}
  find_http || return 1
  set_clock
  # With other controllers, a stalled one is given up sooner.
  _STALL=120 _LONGEST=120
  if [ -n "$SVC_OTHERS" ]; then
    _STALL=20
  fi
  _URLS="$SVC_URL${SVC_OTHERS:+ $SVC_OTHERS}"
}

# Tries several times within one step, so that a restart of the controller is not a failure.
fetch_script() {
  if [ "$SVC_TRUST" = require ] || [ -n "$trust_script" ]; then
    # It came from the step "trust", encrypted to this TPM, and with require from nowhere else.
    return 0
  fi
  prepare_requests || return 1
  # The addresses of the script stand for their controllers.
  fetch_all=$_URLS _URLS=''
  for fetch_from in $fetch_all; do
    _URLS="$_URLS${_URLS:+ }$fetch_from/boot/install/$SVC_NODE"
  done
  SVC_URL=${_URLS%% *}
  persist 8 fetch_from_any
  fetch_status=$?
  SVC_URL=${SVC_URL%/boot/install/*}
  if [ "$fetch_status" -ne 0 ]; then
    complain "cannot fetch $http_causes"
    return 1
  fi
}

# Tries each controller in turn.
fetch_from_any() {
  ask_controllers fetch_once '' && return 0
  log "$asked_last: $http_cause"
  return 1
}

fetch_once() {
  # The script contains the node's token.
  rm -f "$_TMP/install"
  (umask 077 && : > "$_TMP/install")
  http_request "$SVC_URL" "$_TMP/install" || { rm -f "$_TMP/install" && return 1; }
  is_script
}

# A proxy may have answered with a page of its own.
is_script() {
  fetch_line=''
  IFS= read -r fetch_line 2>/dev/null < "$_TMP/install"
  case $fetch_line in
    '#!'*) ;;
    *)
      http_cause="the answer is no script, it begins with '$(printable "$fetch_line")'"
      return 1
      ;;
  esac
}

# Certificates have a validity period, and a machine with an empty battery may be years off. So before the
# first https request the clock is set to a controller's time if it is more than a minute off. That time is
# not authenticated, so the clock is never set to before this initramfs was built.
set_clock() {
  case "$SVC_URL $SVC_OTHERS:$SVC_INSECURE$SVC_PIN" in
    *https://*:) ;;
    *) return ;;
  esac
  set -f
  for clock_url in $SVC_URL $SVC_OTHERS; do
    # shellcheck disable=SC2046 # words: day, month, year, time
    set -- $(clock_ask "$clock_url/version" 2> /dev/null |
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
    log "warning: $clock_url says that it is $clock_wanted, before this initramfs was built: the clock stays"
  elif date -u -s "$clock_wanted" > /dev/null; then
    log "the clock was ${clock_off#-} s off: it is set to $clock_wanted UTC, as $clock_url says"
  fi
}

# Prints the head of an answer, whatever the certificate.
clock_ask() {
  INSECURE=-k _STALL=10 _LONGEST=20
  http_request "$1" /dev/null
  cat "$_TMP/head"
}
