# Settings of the programs that stay on the node, with a token of their own. It needs http.sh, and $conf.

# Reads the settings: a word and its value on each line, which no shell evaluates.
settings() {
  url='' node='' token='' insecure='' SVC_PIN=''
  while read -r key value; do
    case $key in
      url) url=$value ;;
      node) node=$value ;;
      token) token=$value ;;
      insecure) insecure=$value ;;
      pin) SVC_PIN=$value ;;
    esac
  done < "$conf" || return 1
  SVC_URL=${url%% *} _URLS=$url SVC_TOKEN=$token INSECURE=${insecure:+-k}
  [ -n "$url" ] && [ -n "$node" ] && [ -n "$token" ]
}

# Keeps the token that the last answer held, if any.
renew_token() {
  renewed=$(sed -n 's/^[[:space:]]*[Xx]-[Aa]ccess-[Tt]okens: *\([A-Za-z0-9._-]*\).*$/\1/p' "$_TMP/head" | tail -n 1)
  # Stored before it replaces the old token: without one the node would need a new installation.
  if [ -n "$renewed" ]; then
    if ! settings_text "$url" "$node" "$renewed" "$insecure" > "$conf.new" ||
      ! { sync "$conf.new" || sync; } 2>/dev/null || ! mv -f "$conf.new" "$conf"; then
      log "the new token cannot be kept in $conf"
    fi
  fi
}
