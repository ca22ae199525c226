# The installed system tells the controller at each boot that it is up, and which packed image it was made from (rules
# 4.26). systemd tries again until the controller has taken it.

running_unit() {
  case $SVC_URL in
    *[!][A-Za-z0-9:/._~%@+-]*)
      log "warning: the system will not report that it is up: $SVC_URL holds a character that no URL has"
      return 0
      ;;
  esac
  running_url=$SVC_URL/boot/running/$(url_segment "$SVC_NODE")/$(url_segment "$SVC_IMAGEFILE")
  running_script "$running_url" | image_place /etc/svc/running 755 &&
    running_service | image_place /etc/systemd/system/svc-running.service 644 &&
    image_link ../svc-running.service /etc/systemd/system/multi-user.target.wants/svc-running.service
}

running_script() {
  cat << END
#!/bin/sh
# Tells svcd that this system is up. Written by svcd at the installation.
if command -v curl > /dev/null; then
  exec curl -q -g -s -S -f ${INSECURE:+-k }--max-time 60 -o /dev/null '$1'
fi
exec wget -q ${INSECURE:+--no-check-certificate }-O /dev/null '$1'
END
}

running_service() {
  cat << 'END'
[Unit]
Description=Tell svcd that this system is up
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/sh /etc/svc/running
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
END
}
