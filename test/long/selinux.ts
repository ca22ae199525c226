import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'

// A Debian that enforces SELinux with its default policy. The installation gives the files their labels.

export const packages = ['selinux-basics', 'selinux-policy-default', 'policycoreutils', 'dbus']
export const kernelOptions = 'security=selinux selinux=1 enforcing=1'

/** Changes the tree of an image so that it enforces. */
export const enforce = (tree: string): Promise<void> =>
  writeFile(join(tree, 'etc/selinux/config'), 'SELINUX=enforcing\nSELINUXTYPE=default\n')

/** What makes two denials differ: a serial console loses bytes of long lines. */
const short = [
  's/.*denied +/denied /',
  's/ (for|pid=[0-9]+|dev="[^"]*"|ino=[0-9]+|capability=[0-9]+|permissive=[01])( |$)/ /g',
  's/ (pid=[0-9]+|ino=[0-9]+|permissive=[01])//g',
  's/ [st]context=[a-z_]+:[a-z_]+:/ /g',
  's/ +/ /g'
].join(';')

/** Commands for the booted system; each of their lines begins with a word. */
export const asks = `
  echo "enforce $(cat /sys/fs/selinux/enforce)"
  echo "init $(cat /proc/1/attr/current | tr -d '\\0')"
  restorecon -nvr /etc /usr /root /var/lib 2>&1 | sed 's/^/wrong /'
  journalctl -q -b -o cat --no-pager --grep 'avc: +denied' | sed -E '${short}' | sort -u`

/** What the policy of Debian 12 denies to programs of Debian 12 itself, whoever has installed it. */
const ofDebian = [
  /{ relabelfrom } .*comm="systemd-tmpfile" name="(mtab|root)"/,
  /{ setrlimit } .*comm="(systemd-udevd|\(udev-worker\)|udev-worker)"/,
  /{ search } .*comm="(systemd-udevd|\(udev-worker\)|udev-worker)" .*sysctl_fs_t/,
  /{ checkpoint_restore } .*comm="agetty"/
]

/**
 * Whether the booted system enforces, and nothing was denied but that. `told`: the lines of a word, without
 * it.
 */
export function enforces(t: Test, told: (word: string) => readonly string[], about: object): void {
  t.strictSame(told('enforce'), ['1'], 'SELinux enforces', about)
  t.match(told('init')[0], /:init_t:/, 'init has its domain', about)
  t.strictSame(told('wrong'), [], 'each file has its label', about)
  const others = told('denied').filter(line => !ofDebian.some(known => known.test(line)))
  t.comment(`denied by Debian's policy to Debian's programs: ${told('denied').length - others.length}`)
  t.strictSame(others, [], 'nothing else was denied', about)
}
