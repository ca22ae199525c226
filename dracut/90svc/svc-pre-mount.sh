#!/bin/sh
# dracut's hook "pre-mount": puts the image on /sysroot. dracut then finds its new root mounted, and so does
# systemd, whose unit sysroot.mount is ordered after this hook.

# If the kernel killed the script, for lack of memory say, the image is incomplete.
svc_until_ready() {
  until /usr/lib/svc/svc-node.sh < /dev/null; do
    echo "svc: the node's side was ended with status $?: starting it again in 10 s"
    sleep 10
  done
}

if [ "$(getarg root=)" = svc ]; then
  if (: > /dev/console) 2> /dev/null; then
    svc_until_ready > /dev/console 2>&1
  else
    svc_until_ready
  fi
fi
