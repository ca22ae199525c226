#!/bin/sh
# Runs the tests, all of them or the files given (test/….test.ts), and closes with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
# Most tests wait for nothing but the disk: scratch directories are in memory while it has room, in mounts
# that end with this run and do not hide this checkout. The long proofs need more room, and a TMPDIR is
# somebody's wish.
case $(pwd -P) in /tmp/*) scratch=/var/tmp ;; *) scratch=/tmp ;; esac
free_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
if [ -z "$SVCD_LONG$TMPDIR$SVCD_TEST_MOUNTS" ] && [ "$free_kb" -gt 6000000 ] &&
  unshare --mount true 2> /dev/null; then
  SVCD_TEST_MOUNTS=yes exec unshare --mount sh test/run.sh "$@"
fi
if [ -n "$SVCD_TEST_MOUNTS" ]; then
  mkdir -p .tap
  mount -t tmpfs -o mode=1777 svcd-test $scratch && mount -t tmpfs svcd-test .tap || exit 1
  export TMPDIR=$scratch
fi
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
  for file in $(find .cache/js/test -name '*.test.js' ! -path '.cache/js/test/long/*' | sort); do
    set -- "$@" "$file"
  done
fi
log=.cache/test-$$.tap
node test/all.mjs "$@" >"$log"
status=$?
node test/summary.mjs "$log" "$@" || status=1
rm -f "$log"
exit $status
