# Makes text from hardware or people safe for JSON, URLs and configuration files. The functions are called in
# $( ), which keeps their variables.

# Prints the bytes of a text as decimal numbers.
bytes() {
  printf '%s' "$1" | od -An -v -tu1
}

# Prints a text as a JSON string in ASCII. Bytes that are not UTF-8 become U+FFFD.
json_string() {
  case $1 in
    *[!A-Za-z0-9\ ._:/,@=+-]*) ;;
    *) printf '"%s"' "$1" && return ;;
  esac
  if ! program od >/dev/null; then
    printf '"%s"' "$(printf '%s' "$1" | tr -cd 'A-Za-z0-9 ._:/,@=+-')"
    return
  fi
  # shellcheck disable=SC2046 # a word for each byte
  json_bytes $(bytes "$1")
}

# Prints decimal bytes as a JSON string.
json_bytes() {
  point=0
  least=0
  missing=0
  printf '"'
  for byte in "$@"; do
    if [ "$missing" -gt 0 ]; then
      if [ "$byte" -ge 128 ] && [ "$byte" -lt 192 ]; then
        point=$((point * 64 + byte - 128))
        missing=$((missing - 1))
        if [ "$missing" -eq 0 ]; then
          json_point "$point" "$least"
        fi
        continue
      fi
      printf '\\ufffd'
      missing=0
    fi
    if [ "$byte" -lt 128 ]; then
      json_ascii "$byte"
    elif [ "$byte" -ge 194 ] && [ "$byte" -lt 224 ]; then
      point=$((byte - 192)) least=128 missing=1
    elif [ "$byte" -ge 224 ] && [ "$byte" -lt 240 ]; then
      point=$((byte - 224)) least=2048 missing=2
    elif [ "$byte" -ge 240 ] && [ "$byte" -lt 245 ]; then
      point=$((byte - 240)) least=65536 missing=3
    else
      printf '\\ufffd'
    fi
  done
  if [ "$missing" -gt 0 ]; then
    printf '\\ufffd'
  fi
  printf '"'
}

json_ascii() {
  if [ "$1" -lt 32 ] || [ "$1" -eq 34 ] || [ "$1" -eq 92 ] || [ "$1" -eq 127 ]; then
    printf '\\u%04x' "$1"
  else
    printf '%b' "\\0$(($1 / 64))$(($1 / 8 % 8))$(($1 % 8))"
  fi
}

# Prints a decoded code point. Overlong forms, surrogates and numbers above U+10FFFF are not UTF-8.
json_point() {
  if [ "$1" -lt "$2" ] || [ "$1" -gt 1114111 ] || { [ "$1" -ge 55296 ] && [ "$1" -lt 57344 ]; }; then
    printf '\\ufffd'
  elif [ "$1" -lt 65536 ]; then
    printf '\\u%04x' "$1"
  else
    printf '\\u%04x\\u%04x' "$((55296 + ($1 - 65536) / 1024))" "$((56320 + ($1 - 65536) % 1024))"
  fi
}

# Prints a name as one segment of a URL path.
url_segment() {
  case $1 in
    *[!A-Za-z0-9._~-]*) ;;
    *) printf '%s' "$1" && return ;;
  esac
  for byte in $(bytes "$1"); do
    if [ "$byte" -gt 47 ] && [ "$byte" -lt 58 ] || [ "$byte" -gt 64 ] && [ "$byte" -lt 91 ] ||
      [ "$byte" -gt 96 ] && [ "$byte" -lt 123 ] || [ "$byte" -eq 45 ] || [ "$byte" -eq 46 ]; then
      json_ascii "$byte"
    else
      printf '%%%02X' "$byte"
    fi
  done
}

# Prints a value for a configuration file, without characters that no name or address has.
word() {
  case $1 in
    *[!A-Za-z0-9._:/%-]*)
      printf 'svc: warning: %s holds a character that no name or address has\n' "$(json_string "$1")" >&2
      printf '%s' "$1" | tr -cd 'A-Za-z0-9._:/%-'
      ;;
    *) printf '%s' "$1" ;;
  esac
}

# Prints the words in order without duplicates, one blank between them.
unique() {
  seen=''
  for item in "$@"; do
    item=$(word "$item")
    case " $seen " in
      *" $item "*) ;;
      *) seen="$seen${seen:+ }$item" ;;
    esac
  done
  printf '%s' "$seen"
}
