# Reports what the machine is made of, and makes the installed system report it at each boot and each day
# (rules 6.16).

inventory_update() {
  inventory_text > "$_TMP/inventory"
  inventory_report=$(sh "$_TMP/inventory" --print)
  rm -f "$_TMP/inventory"
  http_post "/monitor/inventory/$(url_segment "$SVC_NODE")" "$inventory_report" ||
    log 'warning: the hardware could not be reported'
}

inventory_unit() {
  inventory_text | image_place /etc/svc/inventory 755 &&
    settings_text "$_URLS" "$SVC_NODE" "$FILES_TOKEN" "${INSECURE:+yes}" |
    image_place /etc/svc/inventory.conf 600 &&
    image_place /etc/systemd/system/svc-inventory.service 644 <<'SVC_END_OF_UNIT' &&
[Unit]
Description=Tell svcd what this machine is made of
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/sh /etc/svc/inventory
Restart=on-failure
RestartSec=60

[Install]
WantedBy=multi-user.target
Also=svc-inventory.timer
SVC_END_OF_UNIT
    image_place /etc/systemd/system/svc-inventory.timer 644 <<'SVC_END_OF_UNIT' &&
[Unit]
Description=Tell svcd each day what this machine is made of, so that its token does not expire

[Timer]
OnBootSec=1d
OnUnitActiveSec=1d
RandomizedDelaySec=1h

[Install]
WantedBy=timers.target
SVC_END_OF_UNIT
    image_link ../svc-inventory.service /etc/systemd/system/multi-user.target.wants/svc-inventory.service &&
    image_link ../svc-inventory.timer /etc/systemd/system/timers.target.wants/svc-inventory.timer
}
