#!/bin/sh
# Checks the version of Node in package.json, before npm or the compiler fail with a less clear message.
set -eu
cd "$(dirname "$0")/.."

fail() {
  echo "$1" >&2
  exit 1
}

needed=$(sed -n 's/.*"node": ">=\([0-9.]*\)".*/\1/p' package.json)
command -v node >/dev/null || fail "node is missing: install Node $needed or later"
present=$(node -p process.versions.node)
printf '%s\n' "$needed" "$present" | sort -CV ||
  fail "svcd needs Node $needed or later, this is $present ($(command -v node))"
