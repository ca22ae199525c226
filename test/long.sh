#!/bin/sh
# The long proofs: everything of `make test` with more rounds and larger sizes, then test/long. The table of what was
# shown comes last, whatever failed before.
cd "$(dirname "$0")/.." || exit 1
mkdir -p .cache
SVCD_LONG=1
SVCD_PROOFS=$PWD/.cache/proofs-$$.ndjson
export SVCD_LONG SVCD_PROOFS
: >"$SVCD_PROOFS"
status=0
SVCD_KILL_ROUNDS=${SVCD_KILL_ROUNDS:-200} SVCD_PROPERTY_RUNS=${SVCD_PROPERTY_RUNS:-8} sh test/run.sh --timeout=3600 || status=1
sh test/run.sh --timeout=3600 $(find test/long -name '*.test.ts' | sort) || status=1
node .cache/js/test/proof-table.js "$SVCD_PROOFS" || status=1
rm -f "$SVCD_PROOFS"
exit $status
