#!/bin/sh
# hold-user.sh: holds the user namespace that it was started in until its standard input ends
# (lib/image/packer/sandbox.ts). Says "ready".
set -eu

echo ready
read -r _
