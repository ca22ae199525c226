#!/bin/sh
# hand-over.sh STATE FILES IMAGES USER: gives the state and the files of a svcd that ran as root to USER, and leaves the
# images root's. To be typed as root while svcd is stopped; again is fine. STATE, FILES and IMAGES are [paths] state,
# [paths] files and [image] directory. Nothing is followed that is a link, and no other file system is entered.
set -eu

if [ $# -ne 4 ]; then
  echo 'Usage: hand-over.sh STATE FILES IMAGES USER' >&2
  exit 2
fi
state=$(realpath -- "$1")
files=$(realpath -m -- "$2")
images=$(realpath -m -- "$3")
user=$4
group=$(id -gn -- "$user")

for directory in "$state" "$files" "$images"; do
  case $directory in
    / | /bin | /boot | /dev | /etc | /home | /lib* | /proc | /root | /run | /sbin | /srv | /sys | /tmp | /usr | /var | /var/lib)
      echo "$directory is a directory of the system: nothing is changed" >&2
      exit 1
      ;;
  esac
done

# A daemon holds a kernel lock on its state. What it made meanwhile would stay its own.
if command -v flock >/dev/null && ! flock -n "$state" true; then
  echo "svcd is running on $state: stop it first (systemctl stop svcd); nothing is changed" >&2
  exit 1
fi

mkdir -p "$files" "$images"
# All but the images, wherever these lie or lay before. Files keep their group: it may be the seeder's.
find "$state" -xdev -mindepth 1 \( -path "$images" -o -path "$files" -o -path "$state/images" \) -prune -o -exec chown -h "$user:$group" {} +
find "$files" -xdev -path "$images" -prune -o -exec chown -h "$user" {} +
# In a sticky directory of root's, svcd can put nothing else in the place of the images.
chown root:"$group" "$state" "$images"
chmod 1771 "$state"
chmod u+rwx,g+x,g-w,o-w "$images"
echo "$state and $files belong to $user now; $images stays root's"
