#!/bin/busybox sh
# shellcheck shell=dash
# tree-sum.sh DIRECTORY: one checksum over everything below it: names, types, modes, owners, the targets of
# symbolic links and the content of files. Run with the same busybox on the source of an image and on the
# machine that unpacked it.
cd "$1" || exit 1
find . | sort | while read -r path; do
    if [ -L "$path" ]; then
        echo "link $path $(readlink "$path")"
    else
        stat -c '%F %a %u:%g %n' "$path"
        [ ! -f "$path" ] || sha256sum "$path"
    fi
done | sha256sum | cut -d ' ' -f 1
