#!/bin/sh
# dracut's hook "cmdline": says that somebody knows what root=svc means.
if [ "$(getarg root=)" = svc ]; then
  # shellcheck disable=SC2034
  rootok=1
fi
