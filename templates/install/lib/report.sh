# Reports of the node to the controller (rules 4.16). One that does not arrive is shown on the console, and
# the installation goes on.

status_update() {
  report_node=$(json_string "$SVC_NODE")
  http_post "/monitor/node/$(url_segment "$SVC_NODE")" \
    "{\"monitor\":{\"status\":{$report_node:{\"state\":$(json_string "$1")}}}}" ||
    log "warning: the status '$1' could not be reported"
}

# Reports the hardware inventory, if dmidecode is there.
sysinfo_update() {
  if ! program dmidecode >/dev/null; then
    return 0
  fi
  report_node=$(json_string "$SVC_NODE")
  report_vendor=$(json_string "$(dmi_value system-manufacturer)")
  report_assettag=$(json_string "$(dmi_value chassis-asset-tag)")
  http_post "/config/node/$(url_segment "$SVC_NODE")" \
    "{\"config\":{\"node\":{$report_node:{\"vendor\":$report_vendor,\"assettag\":$report_assettag}}}}" ||
    log 'warning: the system information could not be reported'
}

# dmidecode writes warnings as comment lines before the value.
dmi_value() {
  dmidecode -s "$1" 2>/dev/null | sed -e '/^#/d' -e 's/[[:space:]]*$//' -e q
}

ip_update() {
  report_address=$(interface_address "$_BOOTIF")
  if [ -z "$report_address" ]; then
    log "warning: interface $_BOOTIF has no IPv4 address to report"
    return 0
  fi
  report_node=$(json_string "$SVC_NODE")
  report_entry="{\"interface\":$(json_string "$INTERFACE"),\"force\":true,\"ipaddress\":\"$report_address\"}"
  http_post "/config/node/$(url_segment "$SVC_NODE")" \
    "{\"config\":{\"node\":{$report_node:{\"name\":$report_node,\"interfaces\":[$report_entry]}}}}" ||
    log 'warning: the IP address could not be reported'
}

dynamic_ip_check() {
  if [ "${SVC_BOOTPROTO:-}" = dhcp ] && [ -n "${SVC_BOOTIF:-}" ]; then
    ip_update
  fi
}

# Prints the first IPv4 address of a network interface, or nothing.
interface_address() {
  ip -4 -o addr show dev "$1" 2>/dev/null | sed -n 's/^.* inet \([0-9.]*\).*$/\1/p;q'
}
