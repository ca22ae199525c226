# Files inside the image. A symbolic link there means what it will mean once the image runs: it is followed
# inside the image, never out of it.

# Where a path of the image lies for us: links among its directories resolved, the last part only with a second
# argument.
image_path() (
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
            exit 1
          fi
          target=$(readlink "$_SYSTEMROOT$resolved/$part") || exit 1
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
    exit 1
  fi
  printf '%s' "$_SYSTEMROOT$resolved"
)

# Standard input becomes the file $1 of the image with mode $2. The file is replaced as a whole: a link of
# that name is replaced, not followed, and a wider mode is never there for a moment.
image_place() {
  place_path=$(image_path "$1")
  if [ -z "$place_path" ] || { [ -d "$place_path" ] && ! [ -L "$place_path" ]; }; then
    complain "$1 is no place for a file in the image"
    return 1
  fi
  if mkdir -p "${place_path%/*}" && rm -f "$place_path.svc-new" &&
    (umask 077 && cat > "$place_path.svc-new") && chmod "$2" "$place_path.svc-new"; then
    if [ -L "$place_path" ]; then
      rm -f "$place_path"
    fi
    mv -f "$place_path.svc-new" "$place_path" && return 0
  fi
  # A secret above all is not left half-written.
  rm -f "$place_path.svc-new"
  complain "cannot write $1 in the image"
  return 1
}

# A link in the image; $1 is what it says, $2 the path of the link.
image_link() {
  link_path=$(image_path "$2")
  if [ -n "$link_path" ] && mkdir -p "${link_path%/*}" && rm -f "$link_path" && ln -s "$1" "$link_path"; then
    return 0
  fi
  complain "cannot make the link $2 in the image"
  return 1
}

# The file that a path of the image means, as its system will find it; fails where there is none.
image_file() {
  image_found=$(image_path "$1" whole) && [ -f "$image_found" ] && printf '%s' "$image_found"
}

# Standard input becomes our block in the file $1 of the image; its other lines stay. Where that is a link, it is the
# file that the link means.
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

# Whether the image holds a program; a link counts, as it may point to where only the image finds it.
image_program() {
  for image_directory in usr/sbin usr/bin sbin bin; do
    if [ -e "$_SYSTEMROOT/$image_directory/$1" ] || [ -L "$_SYSTEMROOT/$image_directory/$1" ]; then
      return 0
    fi
  done
  return 1
}

# A secret: base64 content, always mode 0600.
place_secret() {
  secret_file=$_TMP/secret
  if ! (umask 077 && decode "$2" > "$secret_file"); then
    rm -f "$secret_file"
    complain "the content of the secret for $1 cannot be decoded"
    return 1
  fi
  image_place "$1" 600 < "$secret_file"
  secret_status=$?
  rm -f "$secret_file"
  return "$secret_status"
}
