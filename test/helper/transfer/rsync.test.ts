import t from 'tap'
import { mountPoints } from '../../../lib/disk/open-directory.js'
import { readChange, readProgress } from '../../../lib/helper/transfer/rsync.js'
import { checkSelection, chooseFilesystems } from '../../../lib/helper/transfer/selection.js'

t.test('changes, as rsync writes them', async t => {
  const read: Readonly<Record<string, string | undefined>> = {
    '>f+++++++++ etc/motd': 'new etc/motd',
    '<f.st...... a -> b': 'changed a -> b',
    'cd+++++++++ etc/': 'new etc/',
    'cLc.t...... lib': 'changed lib',
    'hf+++++++++ two': 'new two',
    'hf          two': 'changed two',
    '.f...p..a.. etc/shadow': 'attributes etc/shadow',
    '.d..t...... etc/': undefined,
    '.d..tp..... etc/': 'attributes etc/',
    '.f..t...... etc/motd': 'attributes etc/motd',
    '.f          etc/motd': undefined,
    '*deleting    lead and trail ': 'deleted  lead and trail ',
    '*deleting   x\t\u009b1m\u2028': 'deleted x\\#011\\#302\\#2331m\\#342\\#200\\#250',
    'cannot delete non-empty directory: root': undefined,
    'created directory /tmp/x': undefined,
    '': undefined
  }
  for (const [line, change] of Object.entries(read)) t.equal(readChange(line), change)
})

t.test('progress, as rsync writes it', async t => {
  t.equal(readProgress('         32,768  66%   31.25MB/s    0:00:00 (xfr#1, to-chk=3/4)'), 0.25)
  t.equal(readProgress('              0   0%    0.00kB/s    0:00:00 (xfr#0, ir-chk=1000/1000)'), 0)
  t.equal(readProgress('              4  66%    0.00kB/s    0:00:00  '), undefined)
  t.equal(readProgress('>f+++++++++ 1 2% chk=1/2)'), undefined)
})

t.test('which file systems of a node are taken', async t => {
  const mountinfo = `Welcome to node001 / !
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
23 22 0:21 / /proc rw - proc proc rw
24 23 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
25 22 8:1 / /boot rw - ext4 /dev/sda1 rw
26 22 0:40 / /mnt/a\\040b\\134c\\012d rw - nfs server:/x rw
27 26 0:40 / /mnt/a\\040b\\134c\\012d rw - nfs server:/y rw
28 22 8:3 / /var rw - ext4 /dev/sda3 rw
29 28 8:3 / /var/log rw - ext4 /dev/sda4 rw
`
  const mounted = [...new Set(mountPoints(mountinfo))]
  const odd = '/mnt/a b\\c\nd'
  t.strictSame(mounted, ['/', '/proc', '/proc/sys/fs/binfmt_misc', '/boot', odd, '/var', '/var/log'])
  const choose = (...filesystems: string[]) =>
    chooseFilesystems('node001', checkSelection(filesystems, []).filesystems, mounted)
  t.strictSame(choose(), { taken: ['/'], partsOfTaken: [], left: ['/boot', odd, '/var', '/var/log'] })
  t.strictSame(choose('/var/log/', '/', '/usr'), {
    taken: ['/', '/var/log'],
    partsOfTaken: ['/usr'],
    left: ['/boot', odd, '/var']
  })
  t.strictSame(choose('/var'), { taken: ['/var'], partsOfTaken: [], left: ['/var/log'] })
  t.throws(() => choose('/boot', '/varnish'), {
    message: 'grab_filesystems: no file system is mounted at "/varnish" on node node001'
  })
})

t.test('patterns are anchored, whatever they hold', async t => {
  const exclude = ['/var/log/*', 'data', '//x', '+ a', '!', 'a\nb', ' ']
  t.strictSame(checkSelection([], exclude).exclude, [
    ...['/var/log/*', '/data', '/x', '/+ a', '/!', '/a\nb', '/ ']
  ])
  for (const bad of ['', '/', '//'])
    t.throws(() => checkSelection([], [bad]), { message: /names no path below/ })
  t.throws(() => checkSelection([], ['a\0b']), { message: 'grab_exclude: "a\\u0000b" holds a NUL character' })
  t.throws(() => checkSelection([], ['é'.repeat(2001)]), { message: /is longer than 4000 bytes/ })
  t.strictSame(checkSelection(['/', '/a//b/', '/a/b'], []).filesystems, ['/', '/a/b'])
})
