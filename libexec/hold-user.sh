#!/bin/sh
# hold-user.sh: holds the user namespace that it was started in until its standard input ends
# (lib/image/packer/sandbox.ts). Says "ready", waits for a line, which comes when the users are mapped, and says "mapped".
# No further user namespace can be made inside then: in one, a program would have all capabilities again.
set -eu

if [ "${1:-}" != mapped ]; then
  echo ready
  read -r _
  # Only what is started now has the rights of the namespace's root.
  exec sh "$0" mapped
fi
if (echo 0 >/proc/sys/user/max_user_namespaces) 2>/dev/null; then
  echo mapped
else
  echo open
fi
read -r _
