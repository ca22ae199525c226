#!/bin/sh
# hold-image.sh SHIPPED USERS KIND: makes the image in its working directory the root of its namespaces, and
# holds them until its standard input ends (lib/helper/packer/sandbox.ts). SHIPPED holds dracut/,
# initramfs-tools/ and libexec/; USERS is the file of the user namespace for the image's programs, or ''. KIND
# is `shell` for an admin's shell.
#
# The caller opened the working directory, as no path can be trusted: names in the image may change at any
# time. So the root is a new file system. Each directory at the top of the image is entered once, checked to
# lie in the image by its mount, and mounted there from within. Nothing is mounted on a directory of the
# image, and no name of the image is used twice.
#
# Prints "moved" when the new root is there, with the old root mounted over it. The caller unmounts that and
# writes a line; the script prints "ready" if nothing is left of it. After pivot_root the script starts no
# program, as it would be the image's.
set -eu

shipped=$1
users=$2

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

if ! command -v pivot_root >/dev/null; then
  fail 'this machine has no pivot_root: apt install util-linux-extra' \
    '(before version 2.42 it was in util-linux)'
fi

# The image's directory at /sys/image, without other mounts in it. Its device nodes and setuid bits have no
# effect here.
mount --no-canonicalize -t tmpfs -o nosuid,nodev,noexec,mode=0711 svc-stage /sys
mkdir /sys/image /sys/root /sys/proc
reason=''
if [ -z "$users" ]; then
  mount --no-canonicalize --bind . /sys/image
elif command -v perl >/dev/null; then
  # open_tree, mount_setattr and move_mount have these numbers on all architectures. mount(8) can do it since
  # version 2.39.
  # shellcheck disable=SC2016 # Perl's variables
  reason=$(perl -e '
    my ($users, $target, $here, $none) = (@ARGV, ".", "");
    open(my $namespace, "<", $users) or die "$users: $!\n";
    my $mount = syscall(428, -100, $here, 1 | 02000000);
    die "open_tree: $!\n" if $mount < 0;
    my $attributes = pack("Q4", 0x100000, 0, 0, fileno($namespace));
    die "mount_setattr: $!\n" if syscall(442, $mount, $none, 0x1000, $attributes, 32) < 0;
    die "move_mount: $!\n" if syscall(429, $mount, $none, -100, $target, 4) < 0;
  ' "$users" /sys/image 2>&1) || :
else
  reason=$(mount --no-canonicalize --bind -o "X-mount.idmap=$users" . /sys/image 2>&1) || :
fi

# A program with a user namespace of its own would have all capabilities again. This machine's own /proc may
# be read-only.
mount --no-canonicalize -t proc -o nosuid,nodev,noexec proc /sys/proc
if [ -n "$users" ] && ! echo 0 | nsenter --no-fork --user="$users" -- \
  tee /sys/proc/sys/user/max_user_namespaces >/dev/null 2>&1; then
  echo 'programs of the image could make user namespaces: this machine lets nobody set how many'
fi

# ID of the image's own mount.
image=''
idmapped=''
while read -r id _ _ _ point options _; do
  if [ "$point" = /sys/image ]; then
    image=$id
    case ,$options, in *,idmapped,*) idmapped=yes ;; esac
  fi
done </proc/self/mountinfo
if [ -n "$users" ] && [ -z "$idmapped" ]; then
  fail 'the files of the image cannot be shown to its programs as those of other users (idmapped mount:' \
    "${reason:-no perl, and a mount before 2.39}): install perl, and have [image] directory on ext4, XFS or" \
    'Btrfs with Linux 5.15 or later; or set initramfs = no in [image]'
fi
mount --no-canonicalize -o remount,bind,nosuid,nodev /sys/image

# On this machine, root in the image is another user (sandbox.ts).
owner=0
if [ -n "$users" ]; then owner=2147483648; fi
memory() {
  mount --no-canonicalize -t tmpfs -o "$1,uid=$owner,gid=$owner" "svc-$2" "/sys/root${3-/$2}"
}
memory nosuid,nodev,mode=0755,size=1m root ''
for path in /sys/image/* /sys/image/.[!.]* /sys/image/..?*; do
  name=${path##*/}
  case $name in
    proc | sys | dev | run | tmp)
      # These are hidden by mounts, but an image without them is not a system.
      if [ -L "$path" ] || ! [ -d "$path" ]; then
        fail "/$name of the image is not a directory: nothing can be mounted on it"
      fi
      ;;
    *)
      if [ -L "$path" ]; then
        ln -s -- "$(readlink -- "$path")" "/sys/root/$name"
      elif [ -d "$path" ]; then
        cd -P -- "$path"
        exec 4<.
        while read -r key mount; do
          if [ "$key" = mnt_id: ]; then break; fi
        done </proc/self/fdinfo/4
        exec 4<&-
        if [ "$mount" != "$image" ]; then
          fail "/$name of the image was replaced: symbolic links are not followed"
        fi
        mkdir -- "/sys/root/$name"
        mount --no-canonicalize --bind . "/sys/root/$name"
      fi
      ;;
  esac
done
cd /sys/root
mkdir proc sys dev run tmp
mount --no-canonicalize -t proc -o ro,nosuid,nodev,noexec proc /sys/root/proc
memory nosuid,nodev,noexec,mode=0755,size=64k sys
memory nosuid,noexec,mode=0755,size=64k dev
memory nosuid,nodev,mode=0755 run
memory nosuid,nodev,mode=1777 tmp

# dracut reads this file; it works without the rest of the hardware description.
mkdir -p sys/module/firmware_class/parameters
: >sys/module/firmware_class/parameters/path
mount --no-canonicalize -o remount,ro,nosuid,nodev,noexec /sys/root/sys

mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir dev/shm
memory nosuid,nodev,noexec,mode=1777 shm /dev/shm
# Files that reveal this machine's kernel and memory.
for file in config.gz kallsyms kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats \
  sched_debug sysrq-trigger timer_list vmallocinfo; do
  if [ -e "proc/$file" ]; then
    mount --no-canonicalize --bind /sys/root/dev/null "/sys/root/proc/$file"
  fi
done
mount --no-canonicalize -o remount,ro,nosuid,noexec /sys/root/dev

mkdir tmp/svc
cp -R "$shipped/dracut" "$shipped/initramfs-tools" "$shipped/libexec" tmp/svc
chown -R "$owner:$owner" tmp/svc

# In an admin's shell, names are resolved through its network, and packages start no services.
cover() (
  cd -P -- "$1" 2>/dev/null || exit 0
  case $(pwd -P) in /sys/root/*) ;; *) exit 0 ;; esac
  if [ -f "$2" ] && ! [ -L "$2" ]; then mount --no-canonicalize --bind "/sys/root/run/svc/$2" "./$2"; fi
)
if [ "${3:-}" = shell ]; then
  mkdir run/svc
  printf '#!/bin/sh\nexit 101\n' >run/svc/policy-rc.d
  chmod 755 run/svc/policy-rc.d
  echo 'nameserver 10.0.2.3' >run/svc/resolv.conf
  grep -E '^(search|domain)' /etc/resolv.conf >>run/svc/resolv.conf || : # A machine may have none.
  # The image's own file may be a link to one of these.
  for directory in systemd/resolve NetworkManager resolvconf; do
    mkdir -p "run/$directory"
    for name in resolv.conf stub-resolv.conf; do cp run/svc/resolv.conf "run/$directory/$name"; done
  done
  if ! [ -x usr/sbin/policy-rc.d ]; then cover usr/sbin policy-rc.d; fi
  cover etc resolv.conf
fi

# Mount IDs that the image's programs may see. These mounts are held, so that their IDs are not reused.
inner=' '
while read -r id _ _ _ point _; do
  case $point in /sys/root | /sys/root/*) inner="$inner$id " ;; esac
done </proc/self/mountinfo
pivot_root . .
echo moved
read -r _
left=''
proc=''
while read -r id _ _ _ point _; do
  case $inner in *" $id "*) ;; *) left="$left $point" ;; esac
  if [ "$point" = /proc ]; then proc=yes; fi
done </proc/self/mountinfo
if [ -n "$left" ] || [ -z "$proc" ]; then
  fail "the image could not be shut in: of this machine there is still${left:- what /proc does not tell}"
fi
echo ready
read -r _
