#!/bin/sh
# hold-user.sh: holds its user namespace until its standard input ends (lib/helper/packer/sandbox.ts). Prints
# "ready".
set -eu

echo ready
read -r _
