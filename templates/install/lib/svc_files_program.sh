# svc-files [--root DIR] [TAR]: puts the files in place that svcd renders for this node (docs/files.md). It
# is installed behind the functions of http.sh.
#
# In the tar, .svc-directory stands for its directory, and .svc-link.NAME holds the target of link NAME.
# Without TAR the files come from the controller, with the node's own token, as /etc/svc/files.conf says. Each
# file is replaced completely or not at all. Links among the directories of a path are followed only inside
# the root, and only if nobody but root can have made them; a link in the place of the file is replaced.
set -u
umask 077
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

# svcd writes this into the tar for a name that this node may not know.
unknown=2097151

say() {
  printf 'svc-files: %s\n' "$*"
}

log() {
  say "$*" >&2
}

complain() {
  log "$*"
}

die() {
  log "$*"
  exit 1
}

# shellcheck disable=SC2317 # called by the trap
clean() {
  if [ -n "$_TMP" ]; then
    rm -rf "$_TMP"
  fi
}

# Fetches the tar from the first controller that sends it.
fetch() {
  settings || die "$conf is missing or does not name url, node and token: the installation of a node with files writes it"
  _STALL=300 _LONGEST=300 _PATIENCE=0
  # The process list would show busybox's argument with the token.
  if ! find_http || [ "$_HTTP" = busybox ]; then
    die 'neither curl nor GNU wget can be found'
  fi
  archive=$_TMP/answer
  http_get "/boot/files/$node" "$archive" || exit 1
  renew_token
}

# Whether only root can change the contents of the present directory.
trusted() {
  about=$(stat -c '%u %a' .) || return 1
  case $about in
    '0 '*) [ $((0${about#0 } & 022)) -eq 0 ] ;;
    *) return 1 ;;
  esac
}

# Whether only root can enter the present directory; it may inherit its parent's group.
private() {
  case $(stat -c '%u %a' .) in
    '0 700' | '0 2700') ;;
    *) return 1 ;;
  esac
}

# Enters the directory $1, a path below the root, and creates missing parts. The place is checked after each
# step, because a directory may be exchanged for a link meanwhile.
enter() {
  rest=$1
  reached=''
  links=0
  cd -P -- "$root/" || return 1
  while [ -n "$rest" ]; do
    part=${rest%%/*}
    case $rest in
      */*) rest=${rest#*/} ;;
      *) rest='' ;;
    esac
    case $part in
      '' | .) continue ;;
      ..)
        reached=${reached%/*}
        cd -P -- "$root$reached/" || return 1
        ;;
      *)
        if [ -L "./$part" ]; then
          links=$((links + 1))
          if [ "$links" -gt 40 ]; then
            log "$reached/$part leads round in a circle"
            return 1
          fi
          if ! trusted; then
            log "$reached/$part is a link that somebody other than root may have made"
            return 1
          fi
          target=$(readlink "./$part") || return 1
          rest=$target/$rest
          case $target in
            /*)
              reached=''
              cd -P -- "$root/" || return 1
              ;;
          esac
          continue
        fi
        if ! [ -e "./$part" ]; then
          mkdir -m 755 "./$part" || return 1
        fi
        cd -P "./$part" || return 1
        reached=$reached/$part
        ;;
    esac
    if [ "$(pwd -P)" != "$root$reached" ] && [ "$(pwd -P)" != "$root$reached/" ]; then
      log "$reached is another directory by now"
      return 1
    fi
  done
}

# Reads owner, group and mode of the file $1 of the tar, which is $2 on this system.
access_of() {
  wanted=$(stat -c '%u %g %a' "$tree/$1") || return 1
  mode=${wanted##* }
  owner=${wanted%% *}
  group=${wanted#* }
  group=${group% *}
  if [ "$owner" = "$unknown" ] || [ "$group" = "$unknown" ]; then
    log "/$2: this system does not know its owner or its group"
    return 1
  fi
}

# Makes the directory of the tar's file $1 with its owner and mode; present contents stay.
put_directory() (
  path=${1%/.svc-directory}
  access_of "$1" "$path" || exit 1
  if ! enter "$path"; then
    log "/$path cannot be made a directory"
    exit 1
  fi
  if [ "$(stat -c '%u %g %a' .)" = "$wanted" ]; then
    exit 0
  fi
  # Whoever can write above may have moved this directory here: its contents are not given away.
  if [ -n "$(ls -A .)" ] && ! (cd -P .. && trusted); then
    log "/$path has another owner or mode, and somebody other than root may have put it there: rm -r it, or give it its owner"
    exit 1
  fi
  # A numeric mode leaves these bits of a directory alone.
  if chown "$owner:$group" . && chmod ug-s . && chmod "$mode" .; then
    say "/$path is new"
    exit 0
  fi
  log "/$path cannot be given to its owner"
  exit 1
)

# Puts the tar's file $1, or its link, into place. It gets text, owner and mode in a private directory where
# nobody else can write, and is then renamed.
put() (
  name=${1##*/}
  case $1 in
    */*) directory=${1%/*} ;;
    *) directory='' ;;
  esac
  leads=''
  case $name in
    .svc-link.*)
      name=${name#.svc-link.}
      leads=$(cat "$tree/$1") || exit 1
      ;;
  esac
  path=${directory:+$directory/}$name
  enter "$directory" || exit 1
  if [ -d "./$name" ] && ! [ -L "./$name" ]; then
    log "/$path is a directory"
    exit 1
  fi
  access_of "$1" "$path" || exit 1
  if [ -n "$leads" ]; then
    if [ -L "./$name" ] && [ "$(readlink "./$name")" = "$leads" ] &&
      [ "$(stat -c '%u %g' "./$name")" = "$owner $group" ]; then
      exit 0
    fi
  elif [ -f "./$name" ] && ! [ -L "./$name" ] && [ "$(stat -c '%u %g %a' "./$name")" = "$wanted" ] &&
    cmp -s "$tree/$1" "./$name"; then
    exit 0
  fi
  here=$(pwd -P)
  made=$(mktemp -d ./.svc-files.XXXXXX) || exit 1
  if cd -P "$made" && [ "$(pwd -P)" = "${here%/}/${made#./}" ] && private; then
    if fill "$1" "$leads" && mv -fT new "../$name"; then
      written=yes
    else
      rm -f new
      written=''
    fi
    cd .. && rmdir "$made"
    if [ -n "$written" ]; then
      say "/$path is new"
      exit 0
    fi
  fi
  log "/$path cannot be written"
  exit 1
)

# Makes the tar's file $1 as new in the present directory, or a link to $2.
fill() {
  if [ -n "$2" ]; then
    ln -s -- "$2" new && chown -h "$owner:$group" new
  else
    cat "$tree/$1" > new && chown "$owner:$group" new && chmod "$mode" new && { sync new || sync; } 2>/dev/null
  fi
}

root=/
archive=''
_TMP=''
while [ "$#" -gt 0 ]; do
  case $1 in
    --root)
      root=${2:-}
      shift
      ;;
    -*) die 'use: svc-files [--root DIR] [TAR]' ;;
    *) archive=$1 ;;
  esac
  shift
done
if [ "$(id -u)" != 0 ]; then
  die 'only root can put files in place'
fi
root=$(cd -P -- "$root" && pwd -P) || die 'there is no such root'
if [ "$root" = / ]; then
  root=''
fi
conf=$root/etc/svc/files.conf

trap clean 0
trap 'exit 1' HUP INT TERM
_TMP=$(mktemp -d /var/tmp/svc-files.XXXXXX || mktemp -d /tmp/svc-files.XXXXXX) || exit 1
if [ -z "$archive" ]; then
  fetch
fi
tree=$_TMP/tree
if ! mkdir "$tree" || ! tar -xpmf "$archive" -C "$tree"; then
  die 'the tar is damaged'
fi
if [ -n "$(find "$tree" ! -type d ! -type f)" ]; then
  die 'the tar holds something that is neither a file nor a directory'
fi
# Directories come first, parents before children, so that contents find them as they will be.
find "$tree" -type f -name .svc-directory | sort > "$_TMP/list"
find "$tree" -type f ! -name .svc-directory >> "$_TMP/list"
failed=0
while IFS= read -r found; do
  member=${found#"$tree"/}
  case ${member##*/} in
    .svc-directory) placed=${member%/.svc-directory} && put_directory "$member" ;;
    .svc-link.*) placed=${member%.svc-link.*}${member##*.svc-link.} && put "$member" ;;
    *) placed=$member && put "$member" ;;
  esac
  # shellcheck disable=SC2181 # that of one of these
  if [ "$?" -eq 0 ]; then
    if [ -z "$root" ] && command -v restorecon >/dev/null; then
      restorecon "/$placed" 2>/dev/null
    fi
  else
    failed=1
  fi
done < "$_TMP/list"
exit "$failed"
