/**
 * What a hostile program of an image tries, in Perl without a module; it says one line for each attempt: its
 * name, and what came of it. `outside` is a directory of this machine, `device` its file system's major and
 * minor number, `host` a process of it.
 */
export const attempts = (outside: string, device: readonly [number, number], host: number) => `
my ($outside, $major, $minor, $host) = ('${outside}', ${device[0]}, ${device[1]}, ${host});
my %n = (${process.arch === 'arm64' ? arm64 : x64});
my $dev = ($minor & 0xff) | ($major << 8) | (($minor & ~0xff) << 12);
sub say_ { my ($name, @what) = @_; print join(' ', "$name:", @what), "\\n"; }
sub ok { my ($name, $done) = @_; say_($name, $done ? 'done' : "no ($!)"); $done; }
# perl gives -1 for an error.
sub sys { my ($name, @args) = @_; my $r = syscall($n{$name}, @args); $r == -1 ? undef : "0 but true"; }
$| = 1;
alarm 20;

open(my $status, '<', '/proc/self/status');
for (<$status>) { say_($1, $2) if /^(NoNewPrivs|CapEff|CapBnd):\\s*(\\S+)/; }
# The third is the one by which the build tells of itself.
opendir(my $fds, '/proc/self/fd');
for (grep { /^\\d+$/ && $_ != 3 } readdir $fds) {
  my $to = readlink("/proc/self/fd/$_");
  say_("descriptor $_", $to) unless $to =~ m{^/dev/null$|^/var/escaped$|^/proc/|^$};
}
ok('descriptor', open(my $f0, '>', '/proc/self/fd/40/passed'));
ok('sysrq', open(my $f1, '>', '/proc/sysrq-trigger'));
ok('settings', open(my $f2, '>', '/proc/sys/vm/drop_caches'));
ok('core pattern', open(my $f3, '>', '/proc/sys/kernel/core_pattern'));
my $kcore = open(my $f4, '<', '/proc/kcore') && sysread($f4, my $bytes, 4);
say_('kernel memory', $kcore ? 'done' : 'no');
ok('hardware', -e '/sys/class/dmi' || -e '/sys/kernel' || -e '/sys/fs');
for my $pid (1) {
  ok("root of $pid", opendir(my $d, "/proc/$pid/root/$outside"));
  ok("memory of $pid", open(my $m, '<', "/proc/$pid/mem"));
  ok("mounts of $pid", open(my $ns, '<', "/proc/$pid/ns/mnt") && sys('setns', fileno($ns), 0x20000));
}
ok('trace', sys('ptrace', 16, 1, 0, 0)) && waitpid(1, 0x40000000) && sys('ptrace', 17, 1, 0, 0);
ok('signal', kill(0, $host));

for my $place ('/tmp/disk', '/disk', '/boot/disk', '/dev/disk') {
  ok("mknod $place", sys('mknodat', -100, my $path = $place, 060666, $dev));
  ok("disk $place", open(my $d, '<', $place) && sysread($d, my $b, 512));
}
my ($none, $tmpfs, $ext4, $proc, $tmp, $disk, $root) = ('none', 'tmpfs', 'ext4', 'proc', '/tmp', '/tmp/disk', '/');
mkdir '/tmp/mount';
my $mount = '/tmp/mount';
ok('mount of a disk', sys('mount', $disk, $mount, $ext4, 1, 0));
ok('mount', sys('mount', $none, $mount, $tmpfs, 0, 0));
ok('bind', sys('mount', $root, $mount, $none, 4096, 0));
ok('remount', sys('mount', $none, $root, $none, 4096 | 32, 0));
ok('unmount', sys('umount2', $proc = '/proc', 2));
ok('module', sys('init_module', my $module = 'x' x 4096, 4096, my $parameters = ''));
ok('user namespace', sys('unshare', 0x10000000));
ok('mount namespace', sys('unshare', 0x20000));
say_("namespace $_", readlink("/proc/self/ns/$_")) for ('mnt', 'pid', 'net', 'ipc', 'uts', 'user');
# The root directory of the file system, by its inode: names are not asked.
sysopen(my $any, '/etc', 0);
my $handle = pack('LlLL', 8, 1, 2, 0);
my $fd = syscall($n{open_by_handle_at}, fileno($any), $handle, 0200000);
say_('file by its inode', $fd >= 0 && -e "/proc/self/fd/$fd$outside" ? 'done' : 'no');

# A process that leaves its group, its session and its parent.
if (!fork) { sys('setsid'); if (!fork) { open(STDOUT, '>', '/dev/null'); open(STDERR, '>', '/dev/null'); sleep 1000; } exit; }

# Out of the root, by a second one while the working directory stays above it.
mkdir '/tmp/inner';
opendir(my $above, '/');
my $in = chroot('/tmp/inner');
chdir($above);
chdir('..') for 1 .. 64;
chroot('.');
ok('file on the host', open(my $o, '>', "$outside/pwned"));
`

const x64 =
  'ptrace => 101, setns => 308, mknodat => 259, mount => 165, umount2 => 166, init_module => 175, unshare => 272, ' +
  'open_by_handle_at => 304, setsid => 112'
const arm64 =
  'ptrace => 117, setns => 268, mknodat => 33, mount => 40, umount2 => 39, init_module => 105, unshare => 97, ' +
  'open_by_handle_at => 265, setsid => 157'
