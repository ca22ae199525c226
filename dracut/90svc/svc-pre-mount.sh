#!/bin/sh
# dracut's hook "pre-mount": puts the image on /sysroot. dracut then finds its new root mounted, and so does
# systemd, whose unit sysroot.mount is ordered after this hook.
if [ "$(getarg root=)" = svc ]; then
  if (: > /dev/console) 2> /dev/null; then
    /usr/lib/svc/svc-node.sh < /dev/null > /dev/console 2>&1
  else
    /usr/lib/svc/svc-node.sh < /dev/null
  fi
fi
