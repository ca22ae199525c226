#!/bin/sh
# `make install`: installs the built service below DESTDIR (staging; empty for this machine) and PREFIX
# (/usr). Edited ini files and templates are kept; the shipped templates are also in lib/svcd/templates.
set -eu
umask 022
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr}
root=${DESTDIR:-}
code=$root$prefix/lib/svcd
settings=/etc/svcd
state=/var/lib/svcd

fail() {
  echo "$1" >&2
  exit 1
}

test -f dist/commit || fail 'svcd is not built: type "make build" first'
# Packages that are not for development.
packages=$(node -p "Object.entries(JSON.parse(fs.readFileSync('package-lock.json')).packages)
  .filter(([path, { dev, devOptional }]) => path && !dev && !devOptional).map(([path]) => path).join('\n')")
for package in $packages; do
  test -d "$package" || fail 'packages are missing: type "npm ci" first'
done

# A running daemon locks its state in the kernel: its code and its files must stay.
held=$root$state
if test -e "$root$settings/svcd.ini"; then
  held=$root$(node build/places.mjs "$root$settings/svcd.ini" 2>/dev/null | head -n 1)
fi
if test -d "$held" && command -v flock >/dev/null && ! flock -n "$held" true; then
  fail "svcd is running on $held: type \"systemctl stop svcd\", then install again; nothing is changed"
fi

install -d "$root$settings/roles" "$root$settings/scripts"
install -d -m 1771 "$root$state"

# A template is edited if it differs from the copy that the last installation left beside the code.
find -L templates -type f | while read -r file; do
  mine=$root$settings/$file
  if test -e "$mine" && ! cmp -s "$mine" "$code/$file" && ! cmp -s "$mine" "$file"; then
    echo "kept as edited: $mine (shipped: $code/$file)"
  else
    install -D -m 0644 "$file" "$mine"
  fi
done

rm -rf "$code"
install -d "$code/bin"
cp -R dist dracut initramfs-tools libexec page templates package.json "$code"
install -m 0755 bin/svcd bin/svcctl "$code/bin"
install -m 0644 bin/package.json "$code/bin"
for package in $packages; do
  install -d "$code/${package%/*}"
  cp -R "$package" "$code/${package%/*}"
done

# Configurations of the tracker and the seeders, to be copied by hand, and the documents that describe them.
examples=$code/examples
install -d "$examples"
cp -R etc/nginx-svcd.conf etc/keepalived-svcd.conf etc/opentracker.conf etc/aria2.conf \
  systemd/[!s]*.service.d systemd/svcd.service.d systemd/svcd-seeder.service systemd/svcd-consoles.service \
  systemd/svcd-tftp.service \
  "$examples"
documents=$root$prefix/share/doc/svcd
install -d "$documents/docs/metrics"
install -m 0644 README.md SECURITY.md LICENSE "$documents"
# With the changes since the last release.
node build/changelog.mjs >"$documents/CHANGELOG.md"
install -m 0644 docs/*.md docs/*.png "$documents/docs"
install -m 0644 docs/metrics/* "$documents/docs/metrics"
# These are the beginnings of api.md and templates.md.
rm -f "$documents"/docs/*-intro.md

install -d "$root$prefix/bin"
ln -sfn ../lib/svcd/bin/svcd "$root$prefix/bin/svcd"
ln -sfn ../lib/svcd/bin/svcctl "$root$prefix/bin/svcctl"
ln -sfn ../lib/svcd/libexec/svcd-export "$root$prefix/bin/svcd-export"
completions=$root$prefix/share/bash-completion/completions
install -d "$completions"
node bin/svcctl completion bash >"$completions/svcctl"
ln -sfn svcctl "$completions/svcd"
for page in svcctl.1 svcd.ini.5 svcd.8; do
  manual=$root$prefix/share/man/man${page##*.}
  install -d "$manual"
  node build/man.mjs "$page" >"$manual/$page"
done

next='systemctl daemon-reload, and systemctl start svcd'
if test -e "$root$settings/svcd.ini"; then
  echo "kept: $root$settings/svcd.ini"
else
  next="set [http] listen and [controller] address in $settings/svcd.ini, type svcd check, then
      systemctl daemon-reload, and systemctl enable --now svcd; README.md tells more"
  # 0600, as it may contain password hashes.
  node build/ini.mjs \
    "paths.state=$state" "paths.files=$state/files" "image.directory=$state/images" \
    "paths.templates=$settings/templates" "paths.roles=$settings/roles" "paths.scripts=$settings/scripts" \
    >"$root$settings/svcd.ini.new"
  chmod 0600 "$root$settings/svcd.ini.new"
  mv "$root$settings/svcd.ini.new" "$root$settings/svcd.ini"
fi

units=$root$prefix/lib/systemd/system
install -d "$units"
for unit in svcd.service svcd-helper.service svcd-helper.socket svcd-export@.service svcd-export@.timer; do
  sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "systemd/$unit" >"$units/$unit"
done
for unit in svcd-ssh- svcd-rehearsal-; do
  install -D -m 0644 "systemd/$unit.service.d/svcd.conf" "$units/$unit.service.d/svcd.conf"
done
install -D -m 0644 systemd/svcd.sysusers "$root$prefix/lib/sysusers.d/svcd.conf"
install -D -m 0644 systemd/svcd.tmpfiles "$root$prefix/lib/tmpfiles.d/svcd.conf"

# On this machine: the daemon's user and its directories. The state of an earlier version belonged to root.
if test -z "$root" && test "$(id -u)" -eq 0; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$prefix/lib/sysusers.d/svcd.conf"
  else
    id svcd >/dev/null 2>&1 || useradd --system --home-dir "$state" --shell /usr/sbin/nologin svcd
    id svcd-ssh >/dev/null 2>&1 || useradd --system --home-dir / --shell /usr/sbin/nologin svcd-ssh
    getent group svcd-images >/dev/null || groupadd --system svcd-images
  fi
  chgrp svcd "$settings/svcd.ini" && chmod 0640 "$settings/svcd.ini"
  places=$(node build/places.mjs "$settings/svcd.ini")
  # Three lines: state, files, images.
  old_ifs=$IFS
  IFS='
'
  # shellcheck disable=SC2086
  sh "$code/libexec/hand-over.sh" $places svcd
  IFS=$old_ifs
  if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create "$prefix/lib/tmpfiles.d/svcd.conf"
  fi
fi

echo "next: $next"
