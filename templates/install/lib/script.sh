# Scripts of the administrator run in a shell of their own, so that they cannot change this one.

# Runs base64 text as a script, with its output on the console. $1 is its name in messages.
run_script() {
  script_file=$_TMP/$1.sh
  if ! decode "$2" > "$script_file" || ! [ -s "$script_file" ]; then
    complain "the $1 cannot be decoded"
    return 1
  fi
  chmod 700 "$script_file"
  give_programs || return 1
  (
    cd / || exit 1
    case $(script_interpreter "$script_file") in
      '') exec sh "$script_file" ;;
      *) exec "$script_file" ;;
    esac
  )
  script_status=$?
  rm -f "$script_file"
  if [ "$script_status" -ne 0 ]; then
    complain "the $1 ended with status $script_status"
    return 1
  fi
}

# The interpreter that a script names in its first line, if this machine has it.
script_interpreter() (
  IFS= read -r line < "$1"
  case $line in
    '#!'*) ;;
    *) exit ;;
  esac
  line=$(printf '%s' "$line" | sed 's/^#![[:space:]]*//; s/[[:space:]].*$//')
  if [ -x "$line" ]; then
    printf '%s' "$line"
  fi
)
