# Files inside the image. Symbolic links are followed as in the running image, never out of it.

# Prints this script's path of a path of the image. Links among its directories are resolved; a link in the
# last part only with a second argument. Always called in $( ), which keeps its variables.
image_path() {
  rest=$1
  whole=${2:-}
  resolved=''
  links=0
  while [ -n "$rest" ]; do
    part=${rest%%/*}
    case $rest in
      */*) rest=${rest#*/} ;;
      *) rest='' ;;
    esac
    case $part in
      '' | .) ;;
      ..) resolved=${resolved%/*} ;;
      *)
        if [ -n "$rest$whole" ] && [ -L "$_SYSTEMROOT$resolved/$part" ]; then
          links=$((links + 1))
          if [ "$links" -gt 40 ]; then
            return 1
          fi
          target=$(readlink "$_SYSTEMROOT$resolved/$part") || return 1
          case $target in
            /*) resolved='' ;;
          esac
          rest=$target/$rest
        else
          resolved=$resolved/$part
        fi
        ;;
    esac
  done
  if [ -z "$resolved" ]; then
    return 1
  fi
  printf '%s' "$_SYSTEMROOT$resolved"
}

# Writes standard input to the file $1 of the image, with mode $2 and optionally OWNER:GROUP $3 of the image.
# The file is replaced as a whole and never has a wider mode. A link is replaced, not followed.
image_place() {
  place_path=$(image_path "$1")
  if [ -z "$place_path" ] || { [ -d "$place_path" ] && ! [ -L "$place_path" ]; }; then
    complain "$1 is no place for a file in the image"
    return 1
  fi
  if mkdir -p "${place_path%/*}" && rm -f "$place_path.svc-new" &&
    (umask 077 && cat > "$place_path.svc-new") && { [ -z "${3:-}" ] || place_owner "$3"; } &&
    chmod "$2" "$place_path.svc-new"; then
    if [ -L "$place_path" ]; then
      rm -f "$place_path"
    fi
    mv -f "$place_path.svc-new" "$place_path" && return 0
  fi
  # No part of a file may stay, least of all of a secret.
  rm -f "$place_path.svc-new"
  complain "cannot write $1 in the image${place_why:-}"
  return 1
}

# Gives the new file to OWNER:GROUP $1, in names of the image.
place_owner() {
  place_why=$(in_image chown "$1" "${place_path#"$_SYSTEMROOT"}.svc-new" 2>&1 >/dev/null) && place_why='' && return 0
  place_why=": $(last_words "$place_why")"
  return 1
}

# Makes a link in the image: $1 is its target, $2 its path.
image_link() {
  link_path=$(image_path "$2")
  if [ -n "$link_path" ] && mkdir -p "${link_path%/*}" && rm -f "$link_path" && ln -s "$1" "$link_path"; then
    return 0
  fi
  complain "cannot make the link $2 in the image"
  return 1
}

# Prints the file that the image's system will find at a path; fails if there is none.
image_file() {
  image_found=$(image_path "$1" whole) && [ -f "$image_found" ] && printf '%s' "$image_found"
}

# Writes standard input as svcd's block into the file $1 of the image; other lines stay. If $1 is a link, its
# target is written.
image_block() {
  if ! block_path=$(image_path "$1" whole); then
    complain "$1 is no place for a file in the image"
    return 1
  fi
  {
    if [ -f "$block_path" ]; then
      without_block < "$block_path"
    fi
    printf '# svc begin\n'
    cat
    printf '# svc end\n'
  } | image_place "${block_path#"$_SYSTEMROOT"}" 644
}

without_block() {
  block_keep=yes
  while IFS= read -r block_line || [ -n "$block_line" ]; do
    case $block_line in
      '# svc begin') block_keep='' ;;
      '# svc end') block_keep=yes ;;
      *) [ -z "$block_keep" ] || printf '%s\n' "$block_line" ;;
    esac
  done
}

# Whether the image holds a program. A link counts: its target may exist only inside the image.
image_program() {
  for image_directory in usr/sbin usr/bin sbin bin; do
    if [ -e "$_SYSTEMROOT/$image_directory/$1" ] || [ -L "$_SYSTEMROOT/$image_directory/$1" ]; then
      return 0
    fi
  done
  return 1
}

# Writes a secret: base64 content, for root with mode 0600, or as the words mode, owner and group in $3.
place_secret() {
  secret_file=$_TMP/secret
  secret_mode=600 secret_owner=''
  if [ -n "${3:-}" ]; then
    secret_mode=${3%% *} secret_owner=${3#* }
    secret_owner=${secret_owner% *}:${3##* }
  fi
  if ! (umask 077 && decode "$2" > "$secret_file"); then
    rm -f "$secret_file"
    complain "the content of the secret for $1 cannot be decoded"
    return 1
  fi
  image_place "$1" "$secret_mode" "$secret_owner" < "$secret_file"
  secret_status=$?
  rm -f "$secret_file"
  return "$secret_status"
}
