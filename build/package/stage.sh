#!/bin/sh
# stage.sh DIRECTORY ARCH: puts all files of a package for amd64 or arm64 below an empty DIRECTORY: those of
# `make install`, the Node runtime and the production packages, without unused files. Modes and times are the
# same in each build. SOURCE_DATE_EPOCH must be set.
set -eu
umask 022
cd "$(dirname "$0")/../.."
root=$1
arch=$2
code=$root/usr/lib/svcd
documents=$root/usr/share/doc/svcd
: "${SOURCE_DATE_EPOCH:?}"

# Progress for a person; standard output has only the name of the package.
step() { echo "$*" >&2; }

step 'the code of svcd'
DESTDIR=$root PREFIX=/usr sh build/install.sh >/dev/null

# The packages of package-lock.json, whatever this checkout has installed. No script of a package is run.
clean=$root/../modules
rm -rf "$clean"
install -d "$clean"
step 'its packages, from npm'
cp package.json package-lock.json "$clean"
npm ci --silent --omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline --prefix "$clean"
rm -rf "$code/node_modules"
mv "$clean/node_modules" "$code"
rm -rf "$clean" "$code/node_modules/.bin" "$code/node_modules/.package-lock.json"
# A daemon needs no types, source maps, documents, or builds for browsers and for require(). Licences stay,
# some of which are in a README.
modules=$code/node_modules
find "$modules" -type f \( -name '*.map' -o -name '*.ts' -o -name '*.cts' -o -name '*.mts' \
  -o -name '*.yml' -o -name '*.yaml' -o -name 'eslint.*' -o -name '.*' \) -delete
find "$modules" -type d -name '.?*' -prune -exec rm -rf {} +
find "$modules" -name package.json -printf '%h\n' | while read -r package; do
  if test -n "$(find "$package" -maxdepth 1 -iname 'licen[cs]e*')"; then
    find "$package" -maxdepth 1 -name '*.md' ! -iname 'licen[cs]e*' -delete
  fi
done
find "$modules" -path '*/dist/esm' -type d | while read -r esm; do rm -rf "${esm%esm}commonjs"; done
rm -rf "$modules/csv-parse/dist" "$modules/diff/dist" "$modules/diff/libcjs" "$modules/net-snmp/example" \
  "$modules/net-snmp/ref" "$modules/retry/example" "$modules/retry/test" "$modules/smart-buffer/docs" \
  "$modules/mime/bin" "$modules/mime/dist/src/mime_cli.js" "$modules/js-yaml/bin" \
  "$modules/js-yaml/dist/browser" "$modules/js-yaml/dist/js-yaml.cjs.js"
find "$code/dist" -name '*.map' -delete
find "$modules" -type d -empty -delete
# Checks that all packages that the daemon loads are still there.
(cd "$code" && node --input-type=module -e '
  const { dependencies } = JSON.parse((await import("node:fs")).readFileSync("package.json"))
  for (const name of Object.keys(dependencies)) await import(name)')

step 'the bill of materials'
node build/package/sbom.mjs "$arch" "$documents/sbom.cdx.json"

# The runtime is for svcd's commands only, and not on the path.
step 'the Node runtime, from npm'
node build/package/runtime.mjs "$arch" "$root/../runtime"
install -m 0755 "$root/../runtime/node" "$code/bin/node"
install -m 0644 "$root/../runtime/LICENSE" "$documents/LICENSE.node"
rm -rf "$root/../runtime"
sed -i '1s|^#!/usr/bin/env node$|#!/usr/lib/svcd/bin/node|' "$code/bin/svcd" "$code/bin/svcctl"
for command in svcd svcctl; do
  test "$(head -n 1 "$code/bin/$command")" = '#!/usr/lib/svcd/bin/node'
done

install -D -m 0644 build/package/svcd.logrotate "$root/etc/logrotate.d/svcd"
chmod 0755 "$code"/libexec/*.sh
# tmpfiles.d makes it with its owner.
rmdir "$root/var/lib/svcd" "$root/var/lib" "$root/var"
gzip -9n "$root"/usr/share/man/man*/*

find "$root" -type d -exec chmod 0755 {} +
find "$root" -type f -perm /0111 -exec chmod 0755 {} +
find "$root" -type f ! -perm /0111 -exec chmod 0644 {} +
# It may contain password hashes.
chmod 0640 "$root/etc/svcd/svcd.ini"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
