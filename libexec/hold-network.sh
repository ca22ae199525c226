#!/bin/sh
# hold-network.sh PID: connects the network namespace of a process to the outside, but not to this machine's
# loopback, until standard input ends (lib/helper/packer/sandbox.ts). Its name server is 10.0.2.3. Prints
# "ready".
set -eu

if ! command -v slirp4netns >/dev/null; then
  echo 'slirp4netns is missing, without which the shell has no network: apt install slirp4netns' >&2
  exit 1
fi
# slirp4netns unmounts its root, also what is shared with the controller (the names of `ip netns`): it gets mounts of its
# own. The descriptor gets a 1 when the network is up.
unshare --mount slirp4netns --configure --mtu=65520 --disable-host-loopback --enable-sandbox --enable-seccomp \
  --exit-fd=0 --ready-fd=4 "$1" tap0 4>&1 >/dev/null | {
  [ "$(head -c 1)" = 1 ]
  echo ready
  cat >/dev/null
}
