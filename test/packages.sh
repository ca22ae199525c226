#!/bin/sh
# Installs the Debian packages that the tests need, of the lists given (default: packages.txt); without root
# it names the command to type.
set -eu
cd "$(dirname "$0")"
test "$#" -gt 0 || set -- packages.txt

missing=
for package in $(cat "$@"); do
  case $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true) in
    ii*) ;;
    *) missing="$missing $package" ;;
  esac
done
test -n "$missing" || exit 0

command="apt-get install -y --no-install-recommends$missing"
if test "$(id -u)" != 0; then
  echo "the tests need Debian packages that are not installed; type as root: apt-get update && $command" >&2
  exit 1
fi
apt-get -o DPkg::Lock::Timeout=600 update
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $missing
