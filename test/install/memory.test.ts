import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { base64, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { completed, exits, failed, unpacked as install, type Plan, startFakeController } from './install.js'
import { everyCase, InstallingNode, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

/** A node with that much memory to spare beside what always stays free, as its kernel would say. */
const spare = (megabytes: number, total = 2048) =>
  `MemTotal: ${total * 1024} kB\nMemAvailable: ${(128 + megabytes) * 1024} kB\n`
const node = (megabytes: number, plan: Omit<Plan, 'shell'> = {}): Omit<Plan, 'shell'> => ({
  ...plan,
  edit: script => script.replaceAll('/proc/meminfo', '/meminfo'),
  prepare: machine => machine.write('meminfo', spare(megabytes))
})
const answers = (content: string) => ({ '/files/rocky9.tar.gz': packImage({ big: content }) })
const zeros = answers('0'.repeat(12 * 1024 * 1024))
const noise = answers(randomBytes(6 * 1024 * 1024).toString('base64'))

for (const shell of shells) {
  t.test(`memory that runs out is a failed step with its reason, ${shell}`, async t => {
    const unknown = await install(t, { shell, ...node(4, { answers: noise }) })
    failed(t, unknown, 'download', /cannot fetch \S+: no space is left on \/svctmp, 4 MB of memory(: \S|$)/)
    const unpacked = await install(t, { shell, ...node(4, { answers: zeros }) })
    failed(
      t,
      unpacked,
      'unpack',
      /cannot unpack rocky9\.tar\.gz: no space is left on \/sysroot, 4 MB of memory: \S/
    )

    if (!everyCase(shell)) return
    const none = await install(t, { shell, ...node(0) })
    t.not(none.run.status, 0)
    t.match(none.controller.states.at(-1), /failed: init: too little memory: 128 MB are available/)

    const imagesize = noise['/files/rocky9.tar.gz'].length
    const packed = await install(t, { shell, ...node(4, { answers: noise, data: { imagesize } }) })
    failed(t, packed, 'download', /: too little memory: rocky9\.tar\.gz has 6 MB, 4 MB are free for it$/)
    t.strictSame(packed.controller.gets(), [], 'what cannot fit is not fetched')
    const filling = `for w; do case $w in --dir=*) d=\${w#--dir=} ;; esac; done
      while printf '%65536s' x; do :; done > "$d/rocky9.tar.gz" 2>/dev/null; exit 1`
    const torrent = await install(t, {
      shell,
      ...node(4, {
        answers: { ...noise, '/files/rocky9.torrent': 'd8:announce' },
        data: { torrent: 'rocky9.torrent', provision_method: 'torrent' },
        programs: { aria2c: filling }
      })
    })
    failed(
      t,
      torrent,
      'download',
      /: torrent: the torrent did not \S+ \S+: no space is left on \/svctmp, 4 MB of memory/
    )

    const shrinks = { prescript: base64(`printf '${spare(4)}' > /meminfo`) }
    const both = await install(t, { shell, ...node(50, { answers: noise, data: shrinks }) })
    failed(t, both, 'unpack', /unpacking rocky9\.tar\.gz needs more than 6 MB of memory, there are 4 MB/)
  })

  t.test(`an image that fits may use three quarters of the memory afterwards, ${shell}`, async t => {
    const done = await install(t, { shell, ...node(20, { answers: zeros }) })
    completed(t, done)
    const [, svctmp] = done.run.mounts.match(/^svctmp \/svctmp tmpfs (\S+)/m) ?? []
    t.match(svctmp, /size=20480k/)
    t.match(svctmp, /mode=700/)
    const [, size] = done.run.mounts.match(/^svcroot \/sysroot tmpfs .*size=(\d+)k/m) ?? []
    t.ok(Number(size) > 1024 * 1024, 'of the memory there really is')
  })
}

const busybox = readFileSync('/usr/bin/busybox')
/** Puts a shell for its programs into the image. */
const postscript = base64(
  'mkdir -p $_SYSTEMROOT/bin; cp /busybox $_SYSTEMROOT/bin/busybox; for i in sh cat; do ln -s busybox $_SYSTEMROOT/bin/$i; done'
)

/**
 * An image that has labels, and programs that note what they are asked and whether a policy is enforced then.
 */
const labelled = (policy = '') => {
  const note = 'echo "$0 $* $(cat /sys/fs/selinux/enforce 2> /dev/null)" >> /calls'
  return {
    'etc/selinux/config': 'SELINUX=enforcing\nSELINUXTYPE=targeted\n',
    'etc/selinux/targeted/contexts/files/file_contexts': '',
    'usr/sbin/setfiles': `#!/bin/sh\n${note}\n`,
    'usr/sbin/load_policy': `#!/bin/sh\n${note}\n${policy}\n`
  }
}

t.test(
  'labels in memory: the image has the kernel load its policy first, and enforces it when it starts',
  async t => {
    const plan = (policy?: string): Plan => ({
      shell: 'ash',
      data: { postscript },
      answers: { '/files/rocky9.tar.gz': packImage(labelled(policy)) },
      prepare: machine => {
        machine.write('busybox', busybox, 0o755)
        machine.write('sys/fs/selinux/enforce', '1')
      }
    })
    const done = await install(t, plan())
    completed(t, done)
    t.match(done.machine.read('calls'), /^\S*load_policy -i 1\n\S*setfiles -m .* 0\n$/)

    const failing = await install(t, plan('exit 3'))
    completed(t, failing)
    t.match(failing.run.output, /warning: load_policy failed: files in memory have no SELinux labels/)

    const kernel = (machine: InstallingNode) => machine.write('busybox', busybox, 0o755)
    const noSelinux = await install(t, { ...plan(), prepare: kernel })
    completed(t, noSelinux)
    t.match(
      noSelinux.machine.read('calls'),
      /^\S*setfiles -m .*\n$/,
      'a kernel without SELinux takes no policy'
    )

    const data = { partscript: base64('mount -t ramfs disk /sysroot'), postscript }
    const disk = await install(t, { ...plan(), data })
    completed(t, disk)
    t.match(disk.machine.read('calls'), /^\S*setfiles -m .*\n$/, 'a disk keeps labels by itself')
  }
)

t.test('a disk is not limited', async t => {
  const data = { partscript: base64('mount -t tmpfs -o size=64m disk /sysroot') }
  const done = await install(t, { shell: 'ash', ...node(4, { answers: zeros, data }) })
  completed(t, done)
  t.match(done.run.mounts, /disk \/sysroot tmpfs .*size=65536k/)
})

for (const shell of ['bash', 'ash'] as const) {
  // rules 4.33
  t.test(`a disk that a script mounts on /svctmp takes the packed image, ${shell}`, async t => {
    const on = base64('mount -t tmpfs -o size=64m /dev/fake9 /svctmp')
    const onto = base64('mount -t tmpfs /dev/fake1 /sysroot')
    const imagesize = noise['/files/rocky9.tar.gz'].length
    for (const scripts of [
      { prescript: on, partscript: onto },
      {
        partscript: base64(
          'mount -t tmpfs -o size=64m /dev/fake9 /svctmp; mount -t tmpfs /dev/fake1 /sysroot'
        )
      }
    ]) {
      const data = { imagesize, ...scripts }
      const done = await install(t, { shell, ...node(4, { answers: noise, data }) })
      completed(t, done)
      t.equal(done.machine.read('big').length, 8 * 1024 * 1024)
    }
    if (!everyCase(shell)) return
    // It fails once, with the disk mounted, and is tried again.
    const controller = await startFakeController(t)
    controller.files.set('/files/rocky9.tar.gz', noise['/files/rocky9.tar.gz'])
    const machine = new InstallingNode(t, { shell })
    const mounts = 'grep -c fake9 /proc/mounts >> /mounts'
    const again = base64(`${mounts}; mount -t tmpfs -o size=64m /dev/fake9 /svctmp`)
    const data = { ...controller.place, prescript: again, partscript: onto }
    const runs = await machine.run(
      ...[{ ...data, postscript: base64('exit 7') }, data].map(values => installScript(installData(values)))
    )
    exits(t, runs, [1, 0])
    t.equal(machine.text('mounts'), '0\n0\n', 'the second try finds the disk unmounted')
    t.match(controller.states, [
      /started/,
      /prescript/,
      /partscript/,
      /download/,
      /unpack/,
      /network/,
      /postscript/
    ])
  })
}
