# Prepares disks that were used before.

# shellcheck disable=SC2031 # in_image has a PATH of its own
# Gives scripts the program svc_wipe. It lies outside $_TMP, where a script may mount a disk.
give_programs() {
  mkdir -p "$_RUN" && chmod 700 "$_RUN" && svc_wipe_text > "$_RUN/svc_wipe" && chmod 700 "$_RUN/svc_wipe" || return 1
  case :$PATH: in
    *:"$_RUN":*) ;;
    *) PATH=$PATH:$_RUN ;;
  esac
}

# udev assembles old RAIDs and activates old volume groups, and a busy disk cannot be partitioned.
release_disks() {
  give_programs && sh "$_RUN/svc_wipe" --release >/dev/null 2>&1
}
