#!/bin/sh
# dracut's hook "cmdline": tells dracut that root=svc is handled.
if [ "$(getarg root=)" = svc ]; then
  # shellcheck disable=SC2034
  rootok=1
fi
