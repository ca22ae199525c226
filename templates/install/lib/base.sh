# Messages, failures and the end of the run. `complain` keeps its text in a file, because it is often
# called in a subshell, and the report of the failed step needs it.

# Holds what must survive when a script mounts a disk on $_TMP.
_RUN=/svcrun

# While the output of a step is copied, this descriptor leads to the console.
_CAPTURED=''

log() {
  printf 'svc: %s\n' "$*"
  note "$*"
}

# Writes a line to the log of the installation. While output is copied, it arrives there anyway. A log that
# cannot be written fails nothing: a warning would end the step that gives it.
note() {
  [ -n "$_CAPTURED" ] || printf 'svc: %s\n' "$*" >> "$_RUN/log" || :
} 2>/dev/null

complain() {
  printf 'svc: %s\n' "$*" >&2
  note "$*"
  printf '%s' "$*" 2>/dev/null > "$_TMP/reason"
}

# Prints the full path of a program. PATH is searched by hand, because a busybox shell prefers its own applets
# (its tar to GNU tar).
program() (
  name=$1
  IFS=:
  set -f
  for directory in $PATH; do
    if [ -f "$directory/$name" ] && [ -x "$directory/$name" ]; then
      printf '%s\n' "$directory/$name"
      exit 0
    fi
  done
  command -v "$name"
)

# Makes the directories of the run, and removes those of an earlier run that failed.
init() {
  umask 022
  mkdir -p "$_TMP" "$_SYSTEMROOT" && memory_files || return 1
  if [ -e "$_RUN/mounts" ]; then
    log 'an earlier run was here: unmounting what it left'
    unmount_new
  else
    mkdir -p "$_RUN" && chmod 700 "$_RUN" && cut -d ' ' -f 1,2 /proc/mounts > "$_RUN/mounts" || return 1
  fi
  : > "$_RUN/log"
  rm -rf "$_RUN/layout" "$_TMP/torrent" "$_TMP/image" "$_TMP/reason" "$_TMP/failed" "$_TMP/http"
  memory_limit
}

# Reports a step and runs it; the whole run ends when it fails.
run_step() {
  _STEP=$1
  shift
  rm -f "$_TMP/reason" "$_RUN/said"
  log "step $_STEP"
  status_update "installer.$_STEP"
  "$@" || exit 1
}

# Reports every failed run, whatever ended it.
on_exit() {
  exit_status=$?
  trap - 0
  # Signals are handled, not ignored: programs started from here would inherit the latter.
  trap : HUP INT TERM
  script_end 2>/dev/null
  if [ -n "$_CAPTURED" ]; then
    # Some shells have already undone the redirection.
    if (: >&9) 2>/dev/null; then
      exec >&9 2>&9
    fi
    captured_end
  fi
  chroot_unmount
  if [ "$exit_status" -ne 0 ]; then
    exit_reason=$(cat "$_TMP/reason" 2>/dev/null)
    exit_said=$(said_words 2>/dev/null)
    log "FAILED in step $_STEP${exit_reason:+: $exit_reason}"
    exit_reason="installer.failed: $_STEP$(printf '%.400s' "${exit_reason:+: $exit_reason}")"
    # A state has at most 1024 characters, and the end of the output is the most useful part.
    exit_room=$((1000 - $(printf '%s' "$exit_reason" | wc -c)))
    status_update "$exit_reason${exit_said:+; it printed: $(printf '%s' "$exit_said" | tail -c "$exit_room")}"
    printf '' > "$_TMP/failed"
  fi
  exit "$exit_status"
}

# 0 means EXIT, a name that klibc's sh does not know.
catch_exit() {
  trap on_exit 0
  trap 'complain "stopped by a signal"; exit 129' HUP
  trap 'complain "stopped by a signal"; exit 130' INT
  trap 'complain "stopped by a signal"; exit 143' TERM
}
