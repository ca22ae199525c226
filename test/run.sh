#!/bin/sh
# Runs the tests, all of them or the files given (test/….test.ts), and closes with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
mkdir -p .cache
node test/compile.mjs || exit 1
given=
for argument; do
  shift
  case $argument in test/*.test.ts) argument=.cache/js/${argument%.ts}.js ;; esac
  case $argument in --*) ;; *) given=yes ;; esac
  set -- "$@" "$argument"
done
if [ -z "$given" ]; then
  for file in $(find .cache/js/test -name '*.test.js' ! -path '.cache/js/test/long/*'); do
    set -- "$@" "$file"
  done
fi
log=.cache/test-$$.tap
node test/all.mjs "$@" >"$log"
status=$?
node test/summary.mjs "$log" "$@" || status=1
rm -f "$log"
exit $status
