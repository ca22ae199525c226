# Scripts of the administrator run in a shell of their own, so that they cannot change this one.

find_decoder() {
  if program base64 >/dev/null; then
    DECODE='base64 -d'
  elif program openssl >/dev/null; then
    DECODE='openssl base64 -d -A'
  elif program python3 >/dev/null; then
    DECODE='python3 -m base64 -d'
  else
    DECODE=''
    log 'warning: no base64 decoder (base64, openssl, python3): scripts, secrets and roles cannot be placed'
  fi
}

# Decodes base64 to standard output.
decode() {
  if [ -z "$DECODE" ]; then
    complain 'no base64 decoder: base64, openssl or python3 is needed'
    return 1
  fi
  # Some decoders silently skip characters that are not base64.
  case $1 in
    *[!A-Za-z0-9+/=[:space:]]*)
      complain 'a text is not base64'
      return 1
      ;;
  esac
  # shellcheck disable=SC2086 # DECODE is a command with its options
  printf '%s' "$1" | tr -d ' \t\r\n' | $DECODE
}

# Runs base64 text as a script, with its output on the console. $1 is its name in messages.
run_script() {
  script_file=$_TMP/$1.sh
  if ! decode "$2" > "$script_file" || ! [ -s "$script_file" ]; then
    complain "the $1 cannot be decoded"
    return 1
  fi
  chmod 700 "$script_file"
  give_programs || return 1
  script_group
  captured script_start "$script_file"
  script_status=$?
  rm -f "$script_file"
  if [ "$script_status" -ne 0 ]; then
    complain "the $1 ended with status $script_status"
    return 1
  fi
}

script_start() {
  script_shell "$1"
  script_status=$?
  script_end
  return "$script_status"
}

script_shell() (
  exec 9>&-
  if [ -n "$script_group" ]; then
    # 0 stands for the writing process: this shell.
    echo 0 > "$script_group/cgroup.procs"
  fi
  export SVC_SCRIPT="$$:"
  cd / || exit 1
  case $(script_interpreter "$1") in
    '') exec sh "$1" ;;
    *) exec "$1" ;;
  esac
)

# Runs a command with output to console and log (1 MiB at most); the end of it goes to $_RUN/said.
captured() {
  rm -f "$_RUN/console" "$_RUN/words" "$_RUN/told"
  if ! program tee >/dev/null || ! mkfifo "$_RUN/console" "$_RUN/words" 2>/dev/null; then
    "$@"
    return
  fi
  {
    tail -c 16384 < "$_RUN/words" > "$_RUN/said"
    : > "$_RUN/told"
  } &
  captured_tail=$!
  (
    # Over the limit, 25 (SIGXFSZ) would end it. Not every shell knows its name.
    # shellcheck disable=SC2172
    trap '' 25
    # shellcheck disable=SC3045 # The shells of dracut and initramfs-tools know -f.
    ulimit -f 2048 || exec tee "$_RUN/words"
    exec tee -a "$_RUN/log" "$_RUN/words"
  ) < "$_RUN/console" 2>/dev/null &
  captured_tee=$!
  _CAPTURED=yes
  "$@" 9>&1 > "$_RUN/console" 2>&1
  captured_status=$?
  captured_end
  return "$captured_status"
}

# A process that serves a file system may keep the output open forever, so the wait ends after 5 s.
captured_end() {
  _CAPTURED=''
  captured_tries=0
  until [ -e "$_RUN/told" ] || [ "$captured_tries" -ge 50 ]; do
    captured_tries=$((captured_tries + 1))
    sleep 0.1 2>/dev/null || sleep 1
  done
  kill "$captured_tee" "$captured_tail" 2>/dev/null
  rm -f "$_RUN/console" "$_RUN/words"
}

# Prints the last 20 lines of the failed step on one line, without ours, control characters and the token.
said_words() {
  said_escape=$(printf '\033')
  said_text=$(
    tr '\r\t' '\n ' < "$_RUN/said" |
      sed -e "s/$said_escape\[[0-9;?]*[A-Za-z]//g" -e '/^svc: /d' -e '/^[[:space:]]*$/d' | tail -n 20 |
      sed 's/$/ | /' | tr -d '\000-\037\177'
  )
  said_text=${said_text% | }
  until [ -z "$SVC_TOKEN" ] || [ "${said_text#*"$SVC_TOKEN"}" = "$said_text" ]; do
    said_text="${said_text%%"$SVC_TOKEN"*}********${said_text#*"$SVC_TOKEN"}"
  done
  printf '%s' "$said_text"
}

# Leaves the log of the installation in the image.
keep_log() {
  if ! image_place /var/log/svc-install.log 600 < "$_RUN/log"; then
    log 'warning: the image has no log of its installation'
    rm -f "$_TMP/reason"
  fi
}

# A cgroup gathers all processes of a script, whatever session, parent or environment they take. A process
# that is left would keep mounts and disks busy, and make the next try fail for another reason. $_RUN/group
# names the group while it exists, also for a try after a kill.
script_group() {
  script_end
  script_group=$_RUN/cgroup/svc-script-$$
  mkdir -p "$_RUN/cgroup"
  if { mount -t cgroup2 svcscript "$_RUN/cgroup" && mkdir "$script_group" && [ -e "$script_group/cgroup.procs" ]; } 2>/dev/null; then
    printf '%s' "$script_group" > "$_RUN/group"
  else
    script_group=''
  fi
}

script_end() {
  script_group=$(cat "$_RUN/group" 2>/dev/null)
  # The mounts of a killed run are gone.
  if [ -n "$script_group" ] && ! [ -d "$script_group" ]; then
    mount -t cgroup2 svcscript "$_RUN/cgroup" 2>/dev/null
  fi
  script_tries=0
  while [ "$script_tries" -lt 100 ] && script_kill; do
    script_tries=$((script_tries + 1))
    sleep 0.1 2>/dev/null || sleep 1
  done
  if [ "$script_tries" -ge 100 ]; then
    log 'warning: a process that a script has started cannot be ended'
  fi
  rm -f "$_RUN/group"
  umount "$_RUN/cgroup" 2>/dev/null
}

# Kills the remaining processes of a script; fails if there are none. Without cgroups (2), only the
# environment and the root directory tell which processes those are.
script_kill() {
  script_left=''
  for script_process in $(script_processes); do
    if ! script_serves "$script_process"; then
      script_left=yes
      kill -9 "$script_process"
    elif [ -n "$script_group" ]; then
      echo "$script_process" > "$_RUN/cgroup/cgroup.procs"
    fi
  done
  if [ -n "$script_group" ]; then
    echo 1 > "$script_group/cgroup.kill"
    rmdir "$script_group"/*/*/ "$script_group"/*/ "$script_group"
    [ -d "$script_group" ]
  else
    [ -n "$script_left" ]
  fi
} 2>/dev/null

script_processes() {
  if [ -n "$script_group" ]; then
    cat "$script_group/cgroup.procs"
    return
  fi
  grep -l "SVC_SCRIPT=$$:" /proc/[0-9]*/environ | tr -dc '0-9\n'
  # shellcheck disable=SC2012 # the names are numbers
  ls -ld /proc/[0-9]*/root | sed -n "s|^.* /proc/\([0-9]*\)/root -> $_SYSTEMROOT\(/.*\)*\$|\1|p"
}

# Whether a process serves a file system: FUSE, or systemd's sign for it, a name that begins with @.
script_serves() {
  case $(tr '\000' ' ' < "/proc/$1/cmdline") in
    @*) return 0 ;;
  esac
  for script_open in "/proc/$1/fd"/*; do
    [ "$(readlink "$script_open")" != /dev/fuse ] || return 0
  done
  return 1
}

# Prints the interpreter of a script's first line, if this machine has it.
script_interpreter() (
  IFS= read -r line < "$1"
  case $line in
    '#!'*) ;;
    *) exit ;;
  esac
  line=$(printf '%s' "$line" | sed 's/^#![[:space:]]*//; s/[[:space:]].*$//')
  if [ -x "$line" ]; then
    printf '%s' "$line"
  fi
)
