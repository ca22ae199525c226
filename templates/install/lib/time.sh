# Writes files for each time client that the image may hold. Files of an absent one do no harm.
time_servers() {
  # shellcheck disable=SC2046 # a list of words
  time_list=$(unique $(printf '%s' "$1" | tr ',;' '  '))
  if [ -z "$time_list" ]; then
    return 0
  fi
  printf '[Time]\nNTP=%s\n' "$time_list" | image_place /etc/systemd/timesyncd.conf.d/svc.conf 644 || return 1
  for time_file in /etc/chrony.conf /etc/chrony/chrony.conf /etc/ntp.conf /etc/ntpsec/ntp.conf; do
    if image_file "$time_file" >/dev/null; then
      for server in $time_list; do
        printf 'server %s iburst prefer\n' "$server"
      done | image_block "$time_file" || return 1
    fi
  done
}
