#!/bin/sh
# The node's boot between its kernel and its root file system, with the kernel argument root=svc. It finds the
# interface, brings it up, and fetches and runs the install script, which puts the node's image on /sysroot.
# It runs as root in an initramfs of dracut or initramfs-tools, under bash, dash or busybox ash.
#
# It ends with 0 only when the image is ready. When a step fails, the console shows it and all steps are
# repeated; with svc.service=1 a shell is opened first.

set +e
unset IFS
umask 022
LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

_LIB=$(cd "${0%/*}" && pwd)
_TMP=/run/svc
_STEP=''
# Why the step failed.
_REASON=''

# shellcheck source=SCRIPTDIR/svc-arguments.sh
. "$_LIB/svc-arguments.sh"
# shellcheck source=SCRIPTDIR/svc-interface.sh
. "$_LIB/svc-interface.sh"
# shellcheck source=SCRIPTDIR/svc-http.sh
. "$_LIB/svc-http.sh"
# shellcheck source=SCRIPTDIR/svc-fetch.sh
. "$_LIB/svc-fetch.sh"
# shellcheck source=SCRIPTDIR/svc-trust.sh
. "$_LIB/svc-trust.sh"

log() {
  printf 'svc: %s\n' "$*"
}

# Notes why the step fails.
complain() {
  _REASON=$*
}

program() {
  command -v "$1" >/dev/null 2>&1
}

# Prints untrusted text on one line, cut to 500 characters and without control characters.
printable() {
  printf '%.500s' "$(printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037\177')"
}

# Prints whole seconds since the start of the machine. Nobody sets this clock.
uptime_seconds() {
  IFS=' .' read -r uptime_now _ < /proc/uptime
  printf '%s' "$uptime_now"
}

# Some busybox versions of sleep take no fractions.
nap() {
  sleep 0.2 2>/dev/null || sleep 1
}

step() {
  _STEP=$1
  _REASON=''
  "$2"
}

# Each step can be repeated after it or a later one has failed.
install_node() {
  step arguments read_arguments && step interface find_interface && step network network_up &&
    step choice choose_node && step trust prove_machine && step script fetch_script && step install run_script
}

name_host() {
  log "$SVC_NODE (${SVC_HOSTNAME:-$SVC_NODE}), controller $SVC_URL${SVC_OTHERS:+, else $SVC_OTHERS}"
  printf '%s\n' "${SVC_HOSTNAME:-$SVC_NODE}" > /proc/sys/kernel/hostname
}

run_script() {
  log "running the install script of $SVC_NODE"
  (
    killable
    SVC_INSTALLING=yes
    export SVC_INSTALLING
    exec sh "$_TMP/install" < /dev/null
  )
  run_status=$?
  rm -f "$_TMP/install"
  if [ "$run_status" -gt 128 ]; then
    end_leftovers
  fi
  if [ "$run_status" -ne 0 ]; then
    _REASON="the install script ended with status $run_status: its own message is above"
    return 1
  fi
  if ! is_mounted /sysroot; then
    _REASON='the install script succeeded, but nothing is mounted on /sysroot'
    return 1
  fi
}

# Kills what a killed install script left running: it would go on writing to /sysroot.
end_leftovers() {
  for leftover in /proc/[0-9]*; do
    if tr '\000' '\n' < "$leftover/environ" | grep -q '^SVC_INSTALLING='; then
      kill -9 "${leftover##*/}"
    fi
  done 2> /dev/null
}

# Makes the kernel kill the install script first when memory runs out; this script then reports it and tries
# again.
unkillable() {
  echo -1000 > /proc/$$/oom_score_adj
} 2> /dev/null

killable() {
  echo 0 > /proc/self/oom_score_adj
} 2> /dev/null

is_mounted() {
  while read -r _ mounted_on _; do
    if [ "$mounted_on" = "$1" ]; then
      return 0
    fi
  done < /proc/mounts
  return 1
}

service_shell() {
  log "svc.service=1: a shell; 'exit' tries again"
  (
    killable
    if program setsid && setsid -c true < /dev/console > /dev/null 2>&1; then
      setsid -c sh -i < /dev/console > /dev/console 2>&1
    else
      sh -i < /dev/console > /dev/console 2>&1
    fi
  )
}

main() {
  if [ -e "$_TMP" ]; then
    # Only a killed run leaves this directory behind.
    end_leftovers
  fi
  mkdir -p "$_TMP" && chmod 700 "$_TMP"
  unkillable
  pause=2
  until install_node; do
    log "FAILED in step $_STEP: $_REASON"
    if [ "$SVC_SERVICE" = 1 ]; then
      service_shell
      pause=2
    fi
    log "trying again in $pause s"
    sleep "$pause"
    pause=$((pause * 2))
    if [ "$pause" -gt 60 ]; then
      pause=60
    fi
  done
  end_proofs
  network_down
  rm -rf "$_TMP"
  # Frees the memory of the install script's files, which is impossible later. A disk may be mounted on them.
  while umount -l /svctmp 2> /dev/null; do :; done
  log "$SVC_NODE is ready after $(uptime_seconds) s"
}

main
