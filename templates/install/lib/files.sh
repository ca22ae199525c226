# Places the files that svcd renders for the node. The script runs inside the image, so that no link leads out
# of it and users are the image's. The running system repeats it by a timer, with its own token.

node_files() {
  http_get "/boot/files/$(url_segment "$SVC_NODE")" "$_TMP/files.tar" || return 1
  svc_files | image_place /usr/local/sbin/svc-files 755 || return 1
  settings_text "$_URLS" "$SVC_NODE" "$FILES_TOKEN" "${INSECURE:+yes}" |
    image_place /etc/svc/files.conf 600 || return 1
  files_units || return 1
  image_place /etc/svc/files.tar 600 < "$_TMP/files.tar" && files_tar=$(image_path /etc/svc/files.tar) || return 1
  rm -f "$_TMP/files.tar"
  # An installer may have mounted already what the programs need.
  if ! mount_source "$_SYSTEMROOT/dev" >/dev/null; then
    chroot_mount || return 1
  fi
  files_said=$(in_image sh /usr/local/sbin/svc-files /etc/svc/files.tar 2>&1 >/dev/null)
  files_status=$?
  chroot_unmount
  rm -f "$files_tar"
  if [ "$files_status" -ne 0 ]; then
    printf '%s\n' "$files_said" >&2
    complain "the files cannot be placed: $(last_words "$files_said")"
    return 1
  fi
}

files_units() {
  image_place /etc/systemd/system/svc-files.service 644 <<'SVC_END_OF_UNIT' || return 1
[Unit]
Description=Files that svcd renders for this node
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/svc-files
SVC_END_OF_UNIT
  image_place /etc/systemd/system/svc-files.timer 644 <<'SVC_END_OF_UNIT' || return 1
[Unit]
Description=Files that svcd renders for this node

[Timer]
OnBootSec=1min
OnUnitActiveSec=15min
RandomizedDelaySec=5min

[Install]
WantedBy=timers.target
SVC_END_OF_UNIT
  image_link ../svc-files.timer /etc/systemd/system/timers.target.wants/svc-files.timer
}
