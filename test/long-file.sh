#!/bin/sh
# Runs one file of the long proofs for test/long.sh, unless it passed before; its rows of the table go beside
# the mark.
name=$kept/$(echo "$1" | tr / _)
# Another run of the long proofs may have it.
exec 8>"$name.lock"
flock 8
test -e "$name.passed" && exit 0
export SVCD_PROOFS="$PWD/$name.ndjson"
: >"$SVCD_PROOFS"
sh test/run.sh --timeout=7200 "$1" >"$name.log" 2>&1
status=$?
echo "$1: $(tail -n 1 "$name.log")"
if test $status != 0; then
  cat "$name.log"
  exit 1
fi
touch "$name.passed"
