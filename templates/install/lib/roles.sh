# A role is a script of the controller, which a unit of its own runs at each boot of the installed system.

install_role() {
  case $1 in
    '' | [!A-Za-z0-9]* | *[!A-Za-z0-9._-]*)
      complain "$(json_string "$1") is not a role name"
      return 1
      ;;
  esac
  http_get "/boot/roles/$1" "$_TMP/role.json" || return 1
  role_target=$(json_field target 'A-Za-z0-9@:._-' "$_TMP/role.json")
  role_script=$(json_field script 'A-Za-z0-9+/=' "$_TMP/role.json")
  rm -f "$_TMP/role.json"
  if [ -z "$role_target" ] || [ -z "$role_script" ]; then
    complain "role $1: the answer does not hold a target and a base64 script"
    return 1
  fi
  if ! decode "$role_script" > "$_TMP/role" || ! [ -s "$_TMP/role" ]; then
    complain "role $1: the script cannot be decoded"
    return 1
  fi
  image_place "/usr/local/lib/svc/roles/$1" 755 < "$_TMP/role" || return 1
  role_unit "$1" "$role_target" "$_TMP/role" | image_place "/etc/systemd/system/svc-role-$1.service" 644 ||
    return 1
  rm -f "$_TMP/role"
  image_link "../svc-role-$1.service" "/etc/systemd/system/$role_target.wants/svc-role-$1.service"
}

# Prints a field of a flat JSON object, if it holds only characters of the given set.
json_field() {
  tr -d '\n\r' < "$3" | sed -n "s|^.*[{,][[:space:]]*\"$1\"[[:space:]]*:[[:space:]]*\"\\([$2]*\\)\"[[:space:]]*[,}].*\$|\\1|p"
}

role_unit() {
  IFS= read -r role_line < "$3"
  case $role_line in
    '#!'*) role_command='' ;;
    *) role_command='/bin/sh ' ;;
  esac
  printf '[Unit]\nDescription=Role %s\n' "$1"
  # A unit of an earlier target cannot wait for the network.
  case $2 in
    multi-user.target | graphical.target)
      printf 'Wants=network-online.target\nAfter=network-online.target\n'
      ;;
  esac
  printf '\n[Service]\nType=oneshot\nRemainAfterExit=yes\n'
  printf 'ExecStart=%s/usr/local/lib/svc/roles/%s\n' "$role_command" "$1"
  printf '\n[Install]\nWantedBy=%s\n' "$2"
}
