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
  # Those that take longest begin first, so that nothing waits for one of them at the end.
  for name in sites/faults store/standby store/medium-files image/kill machine/boot; do
    set -- "$@" ".cache/js/test/$name.test.js"
  done
  for file in $(find .cache/js/test -name '*.test.js' ! -path '.cache/js/test/long/*' | sort); do
    case " $* " in *" $file "*) ;; *) set -- "$@" "$file" ;; esac
  done
fi
log=.cache/test-$$.tap
node test/all.mjs "$@" >"$log"
status=$?
node test/summary.mjs "$log" || status=1
rm -f "$log"
exit $status
