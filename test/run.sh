#!/bin/sh
# Runs the tests, all of them or the files given (test/….test.ts), and closes with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
mkdir -p .cache
node test/compile.mjs || exit 1
for argument; do
  shift
  case $argument in test/*.test.ts) argument=.cache/js/${argument%.ts}.js ;; esac
  set -- "$@" "$argument"
done
log=.cache/test-$$.tap
npx --no-install tap --reporter=silent --output-file="$log" "$@"
status=$?
node test/summary.mjs "$log" || status=1
rm -f "$log"
exit $status
