# shellcheck shell=sh
# The svc.* kernel arguments (rules 4.2, 4.17). Values are untrusted data: each is checked for its allowed
# characters before a program sees it. Of a repeated argument the last one counts. An image's kernel options
# may add svc.wait=SECONDS (default 60), for the interface, its link and DHCP each, and svc.insecure=1 for a
# controller whose certificate cannot be verified. svc.urls lists the URLs of other controllers, separated by
# commas. svc.pin lists SHA-256 sums of the public keys of their certificates, svc.key has that of svcd's key
# for svc.trust (rules 15.8, 15.10).

# shellcheck disable=SC2034 # the variables are for the other files and for the install script
read_arguments() {
  SVC_BOOTPROTO='' SVC_MAC='' SVC_IP='' SVC_URL='' SVC_NODE='' SVC_HOSTNAME='' SVC_SERVICE=''
  SVC_BOOTIF='' SVC_INSECURE='' SVC_WAIT=60 SVC_OTHERS='' SVC_TRUST='' SVC_KEY='' SVC_PIN='' SVC_MANUAL=''
  export SVC_BOOTPROTO SVC_MAC SVC_IP SVC_URL SVC_NODE SVC_HOSTNAME SVC_SERVICE SVC_BOOTIF SVC_PIN
  IFS= read -r arguments < /proc/cmdline
  set -f
  for argument in $arguments; do
    value=${argument#*=}
    case $argument in
      svc.bootproto=*) SVC_BOOTPROTO=$value ;;
      svc.mac=*) SVC_MAC=$(printf '%s' "$value" | tr 'A-F' 'a-f') ;;
      svc.ip=*) SVC_IP=$value ;;
      svc.url=*) SVC_URL=${value%/} ;;
      svc.urls=*) SVC_OTHERS=$(printf '%s' "$value" | tr ',' ' ') ;;
      svc.node=*) SVC_NODE=$value ;;
      svc.hostname=*) SVC_HOSTNAME=$value ;;
      svc.service=*) SVC_SERVICE=$value ;;
      svc.wait=*) SVC_WAIT=$value ;;
      svc.insecure=1) SVC_INSECURE=1 ;;
      svc.trust=*) SVC_TRUST=$value ;;
      svc.key=*) SVC_KEY=$value ;;
      svc.pin=*) SVC_PIN=$value ;;
      svc.manual=1) SVC_MANUAL=1 ;;
    esac
  done
  set +f
  check_arguments || return 1
  name_host
}

check_arguments() {
  case $SVC_NODE in
    '' | -* | *[!A-Za-z0-9.-]*) refuse node "$SVC_NODE" 'a node name' || return 1 ;;
  esac
  check_url url "$SVC_URL" || return 1
  set -f
  for further in $SVC_OTHERS; do
    check_url urls "$further" || { set +f && return 1; }
  done
  set +f
  case $SVC_MAC in
    [0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]) ;;
    # GUID of an InfiniBand port.
    *[!0-9a-f:]*) refuse mac "$SVC_MAC" 'a MAC address' || return 1 ;;
    ??:??:??:??:??:??:??:??) ;;
    *) refuse mac "$SVC_MAC" 'a MAC address' || return 1 ;;
  esac
  case $SVC_BOOTPROTO in
    dhcp) ;;
    static)
      case $SVC_IP in
        *[!0-9./]*) refuse ip "$SVC_IP" 'an address with its prefix length' || return 1 ;;
        [0-9]*.*.*.*[0-9]/[0-9]*) ;;
        *) refuse ip "$SVC_IP" 'an address with its prefix length' || return 1 ;;
      esac
      ;;
    *) refuse bootproto "$SVC_BOOTPROTO" 'static or dhcp' || return 1 ;;
  esac
  case $SVC_HOSTNAME in
    -* | *[!A-Za-z0-9.-]*) refuse hostname "$SVC_HOSTNAME" 'a host name' || return 1 ;;
  esac
  case $SVC_WAIT in
    '' | *[!0-9]* | ??????*) refuse wait "$SVC_WAIT" 'a number of seconds' || return 1 ;;
  esac
  case $SVC_TRUST in
    '' | none) SVC_TRUST='' ;;
    report | require) check_sum key "$SVC_KEY" || return 1 ;;
    *) refuse trust "$SVC_TRUST" 'none, report or require' || return 1 ;;
  esac
  set -f
  for further in $(printf '%s' "$SVC_PIN" | tr ',' ' '); do
    check_sum pin "$further" || { set +f && return 1; }
  done
  set +f
}

check_sum() {
  case ${#2}:$2 in
    *:*[!0-9a-f]*) refuse "$1" "$2" 'a SHA-256 sum' ;;
    64:*) ;;
    *) refuse "$1" "$2" 'a SHA-256 sum' ;;
  esac
}

check_url() {
  case $2 in
    *[!][A-Za-z0-9:/._~%@+-]*) refuse "$1" "$2" 'a URL' ;;
    http://?* | https://?*) ;;
    *) refuse "$1" "$2" 'a URL' ;;
  esac
}

refuse() {
  _REASON="the kernel argument svc.$1=$(printable "$2") is not $3"
  return 1
}
