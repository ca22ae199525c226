#!/bin/sh
# The long proofs: everything of `make test` with more rounds and larger sizes, then each file of test/long. The table
# of what was shown comes last, whatever failed before. They take hours: a part that passed is not repeated at the same
# commit, with the same Node and numbers of rounds, so that a run that was stopped goes on when it is started again.
cd "$(dirname "$0")/.." || exit 1
commit=$(cat dist/commit)
export SVCD_KILL_ROUNDS SVCD_POWER_ROUNDS SVCD_FAULT_ROUNDS SVCD_PROPERTY_RUNS
kept=.cache/long/$commit-$(node --version)-$SVCD_KILL_ROUNDS-$SVCD_POWER_ROUNDS-$SVCD_FAULT_ROUNDS-$SVCD_PROPERTY_RUNS
case $commit in *-dirty | unknown) rm -rf "$kept" ;; esac
mkdir -p "$kept"
export SVCD_LONG=1
status=0

# part NAME COMMAND...
part() {
  name=$kept/$(echo "$1" | tr / _)
  shift
  [ -e "$name.passed" ] && return
  export SVCD_PROOFS="$PWD/$name.ndjson"
  : >"$SVCD_PROOFS"
  if "$@"; then touch "$name.passed"; else status=1; fi
}

part short env SVCD_KILL_ROUNDS="${SVCD_KILL_ROUNDS:-200}" SVCD_PROPERTY_RUNS="${SVCD_PROPERTY_RUNS:-14}" \
  sh test/run.sh --timeout=7200
for file in $(find test/long -name '*.test.ts' | sort); do part "$file" sh test/run.sh --timeout=7200 "$file"; done
cat "$kept"/*.ndjson >"$kept/all"
node .cache/js/test/proof-table.js "$kept/all" || status=1
exit $status
