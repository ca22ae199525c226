#!/bin/sh
# hand-over.sh STATE FILES IMAGES USER: gives the state and the files of a svcd that ran as root to USER, and
# leaves the images to root. Run it as root while svcd is stopped; running it again is harmless. STATE, FILES
# and IMAGES are [paths] state, [paths] files and [image] directory. It follows only links of root in these
# three paths, and enters no other file system.
set -eu

if [ $# -ne 4 ]; then
  echo 'Usage: hand-over.sh STATE FILES IMAGES USER' >&2
  exit 2
fi

# Refuses a path with a link that is not root's: it may lead anywhere.
refuse_foreign_links() (
  path=$1
  case $path in /*) ;; *) path=$PWD/$path ;; esac
  while [ "$path" != / ]; do
    while [ "$path" != "${path%/}" ]; do path=${path%/}; done
    if [ -L "$path" ]; then
      owner=$(stat -c %u -- "$path")
      if [ "$owner" -ne 0 ]; then
        echo "$path is a link that belongs to user $owner: remove it, or make it again as root;" \
          'nothing is changed' >&2
        exit 1
      fi
      if ! [ -e "$path" ]; then
        echo "$path is a link that leads to nothing: remove it; nothing is changed" >&2
        exit 1
      fi
      target=$(readlink -- "$path")
      case $target in /*) ;; *) target=$(dirname -- "$path")/$target ;; esac
      refuse_foreign_links "$target" || exit 1
    fi
    path=$(dirname -- "$path")
  done
)
for directory in "$1" "$2" "$3"; do
  refuse_foreign_links "$directory" || exit 1
done
state=$(realpath -- "$1")
files=$(realpath -m -- "$2")
images=$(realpath -m -- "$3")
user=$4
group=$(id -gn -- "$user")
# Only svcd.service has this group, to look up names in images: other svcd processes cannot reach their
# devices.
images_group=$group
if [ "$user" = svcd ] && getent group svcd-images >/dev/null; then images_group=svcd-images; fi

for directory in "$state" "$files" "$images"; do
  case $directory in
    / | /bin | /boot | /dev | /etc | /home | /lib* | /proc | /root | /run | /sbin | /srv | /sys | /tmp | \
      /usr | /var | /var/lib)
      echo "$directory is a directory of the system: nothing is changed" >&2
      exit 1
      ;;
  esac
done

# A daemon locks its state in the kernel. Files that it created meanwhile would remain its own.
if command -v flock >/dev/null && ! flock -n "$state" true; then
  echo "svcd is running on $state: stop it first (systemctl stop svcd); nothing is changed" >&2
  exit 1
fi

mkdir -p "$files" "$images"
# In a sticky directory of root, svcd cannot replace the images. Done first, so that it holds from here on.
chown -h root:"$group" "$state"
chown -h root:"$images_group" "$images"
chmod 1771 "$state"
# Everything but the images, also at their former path. Files keep their group, which may be the seeder's.
# With -execdir, a remaining process of the user cannot replace a directory with a link meanwhile.
find "$state" -xdev -mindepth 1 \( -path "$images" -o -path "$files" -o -path "$state/images" \) -prune \
  -o -execdir chown -h "$user:$group" {} +
find "$files" -xdev -path "$images" -prune -o -execdir chown -h "$user" {} +
chmod 0710 "$images"
echo "$state and $files belong to $user now; $images stays root's"
