# Makes the installed system report at each boot that it is up, and its packed image (rules 4.26). systemd
# repeats the report until the controller accepts it.

running_unit() {
  case $_URLS in
    *[!][A-Za-z0-9:/._~%@+\ -]*)
      log "warning: the system will not report that it is up: $_URLS holds a character that no URL has"
      return 0
      ;;
  esac
  running_path=/boot/running/$(url_segment "$SVC_NODE")/$(url_segment "$SVC_IMAGEFILE")
  running_script "$running_path" | image_place /etc/svc/running 755 &&
    running_service | image_place /etc/systemd/system/svc-running.service 644 &&
    image_link ../svc-running.service /etc/systemd/system/multi-user.target.wants/svc-running.service
}

# systemd decides about a boot when all units have started. Endless starts are reported after five minutes.
# What no healthy system has is reported as a failed unit is: fault:WORD.
running_script() {
  cat << 'END'
#!/bin/sh
# Tells svcd that this system is up, and which of its units have failed. Written by svcd at the installation.
query=''
uptime_s() {
  sed 's/[. ].*//' /proc/uptime
}
# $1: the fault, $2: a program without which nothing is known, then what a healthy system does.
check() {
  fault=$1
  command -v "$2" > /dev/null || return 0
  shift 2
  "$@" > /dev/null 2>&1 || faults=${faults}fault:$fault,
}
labeled() {
  case $(ls -Z /etc/passwd) in
    *unlabeled*) return 1 ;;
  esac
}
checks() {
  check root-read-only touch touch /.svc-check && rm -f /.svc-check
  check root-full df test "$(df -P / | sed -n '2s/.* \([0-9]*\)%.*/\1/p')" -lt 100
  check root-closed find test -n "$(find / -maxdepth 0 -perm -555)"
  check tmp-closed find test -n "$(find /tmp/ -maxdepth 0 -perm -1777)"
  check no-resolver ls ls -L /etc/resolv.conf
  check no-machine-id grep grep -q . /etc/machine-id
  check no-hosts getent getent hosts localhost
  check no-root-account getent getent passwd root
  check no-root-shell getent test -x "$(getent passwd root | sed 's/.*://')"
  check no-host-name uname test "$(uname -n | sed 's/^localhost.*//')"
  check no-kernel-modules uname test -d "/lib/modules/$(uname -r)/kernel"
  check no-address ip test -n "$(ip -o address show scope global)"
  [ ! -e /sys/fs/selinux/enforce ] || check unlabeled ls labeled
}
if command -v systemctl > /dev/null; then
  # Seconds since the kernel started: the clock of the machine may be set meanwhile.
  end=$(($(uptime_s) + 300 - ${SVC_WAITED:-0}))
  while
    state=$(systemctl is-system-running 2> /dev/null)
    case $state in
      initializing | starting) [ "$(uptime_s)" -lt "$end" ] ;;
      *) false ;;
    esac
  do
    sleep 1
  done
  case $state in
    # Rescue or emergency mode: it is not up.
    maintenance) exit 1 ;;
    degraded) units=$(systemctl --failed --no-legend --plain --full) ;;
    # systemd lists jobs in no order: what runs comes first, before what waits for it.
    starting) units=$(systemctl list-jobs --no-legend --full | sort -k 4,4b -k 2,2b | sed 's/^ *[0-9]* //') ;;
    *) units='' ;;
  esac
  # A unit that ends at once and is started again is not yet one that has failed.
  again=$(systemctl list-units --state=activating --no-legend --plain --full 2> /dev/null | sed '/^ *svc-/d' |
    while read -r unit _ _ sub _; do
      case $sub,$(systemctl show -p NRestarts "$unit") in
        auto-restart,* | *,NRestarts=[1-9]*) echo "$unit" ;;
      esac
    done)
  if [ "$state" = running ] && [ -n "$again" ]; then state=degraded; fi
  units=$(printf '%s\n' "$units" "$again" | sed -n 's/^[^A-Za-z0-9:_.@-]*\([A-Za-z0-9:_.@\\-]*\.[a-z]*\).*$/\1/p' | head -n 20 |
    sed -e 's/\\/%5C/g' -e 's/@/%40/g' | tr '\n' ',')
  faults=''
  checks
  if [ "$state" = running ] && [ -n "$faults" ]; then state=degraded; fi
  units=$faults$units
  query="?state=$state&units=${units%,}"
  # A boot that goes on is told of again: with this status the unit starts it anew.
  if [ "$state" = starting ] && [ -z "$SVC_WAITED" ]; then
    SVC_WAITED=300 /bin/sh "$0" && exit 75
    exit 1
  fi
fi
END
  cat << END
if command -v curl > /dev/null; then
$(running_tries "$1" '  ' "curl -q -g -s -S -f $(running_check curl)--max-time 60 -o /dev/null")
fi
$(running_tries "$1" '' "wget -q $(running_check wget)-O /dev/null")
END
}

# Prints the options for the check of certificates as words of a script.
running_check() {
  check_options "$1" | sed -e "s|sha256//.*|'&'|" -e 's/$/ /'
}

# Prints lines of a script that ask each controller for the path $1 until one answers.
running_tries() {
  tries_left=$_URLS
  while :; do
    tries_url=${tries_left%% *}$1
    case $tries_left in
      *' '*) printf "%s%s '%s'\"\$query\" && exit\n" "$2" "$3" "$tries_url" ;;
      *)
        printf "%sexec %s '%s'\"\$query\"\n" "$2" "$3" "$tries_url"
        return 0
        ;;
    esac
    tries_left=${tries_left#* }
  done
}

running_service() {
  cat << 'END'
[Unit]
Description=Tell svcd that this system is up
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/sh /etc/svc/running
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
END
}
