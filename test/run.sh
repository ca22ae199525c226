#!/bin/sh
# Runs the tests, all of them or the files given, and closes with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
mkdir -p .cache
log=.cache/test-$$.tap
npx --no-install tap --reporter=silent --output-file="$log" "$@"
status=$?
node test/summary.mjs "$log" || status=1
rm -f "$log"
exit $status
