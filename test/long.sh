#!/bin/sh
# The long proofs: each file of `make test` that has more rounds or larger sizes here, or gives figures to the
# table, and each file of test/long. The table of what was shown comes last, whatever failed before. They take
# hours: a file that passed is not repeated at the same commit, with the same Node and numbers of rounds, so
# that a run that was stopped goes on when it is started again. SVCD_LONG_JOBS files run at a time; the load
# test has the machine for itself.
cd "$(dirname "$0")/.." || exit 1
commit=$(cat dist/commit)
export SVCD_KILL_ROUNDS SVCD_POWER_ROUNDS SVCD_FAULT_ROUNDS
export SVCD_PROPERTY_RUNS="${SVCD_PROPERTY_RUNS:-14}"
kept=.cache/long/$commit-$(node --version)-$SVCD_KILL_ROUNDS-$SVCD_POWER_ROUNDS-$SVCD_FAULT_ROUNDS-$SVCD_PROPERTY_RUNS
case $commit in *-dirty | unknown) rm -rf "$kept" ;; esac
mkdir -p "$kept"
export SVCD_LONG=1 kept

node test/compile.mjs || exit 1
longer=$(grep -rlE --include='*.test.ts' \
  'SVCD_(LONG|KILL_ROUNDS|PROPERTY_RUNS)|everyCase|support/proof|fuzz/random|\./random' test | grep -v '^test/long/')
long=$(find test/long -name '*.test.ts')
status=0
for files in "$longer $(echo "$long" | grep -v /load/)" "$(echo "$long" | grep /load/)"; do
  case $files in *load.test.ts) jobs=1 ;; *) jobs=${SVCD_LONG_JOBS:-1} ;; esac
  for file in $files; do echo "$file"; done | sort | xargs -P "$jobs" -n 1 sh test/long-file.sh || status=1
done

cat "$kept"/*.ndjson >"$kept/all"
node .cache/js/test/proof-table.js "$kept/all" || status=1
exit $status
