import { createHash } from 'node:crypto'
import t from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { completed, exits, failed, install, type Plan } from './install.js'
import { everyCase, shells } from './installing-node.js'

// The kernel of a test may lack dm-verity: here its program notes how it is called, and the mount of a squashfs
// shows a directory. test/long/small-roots.test.ts has the real ones.

const content = 'a file system and its hash tree'
const root = {
  format: 'squashfs' as const,
  file: 'rocky9-0123456789ab-01234567.squashfs',
  sha256: createHash('sha256').update(content).digest('hex'),
  bytes: content.length,
  roothash: 'ab'.repeat(32),
  hashoffset: 8192,
  torrent: ''
}
const programs = {
  veritysetup: 'echo "$*" >> /calls; echo "${DM_DISABLE_UDEV}" >> /calls',
  modprobe: 'exit 0',
  'mount-squashfs': 'for last; do :; done; exec /tools/busybox mount -o bind /lower "$last"'
}
/** A busybox shell prefers its own applet to a program of that name. */
const byDirectory = (script: string) => script.replace('mount -t "$SVC_ROOT_FORMAT"', 'mount-squashfs')
const plan = (data: Partial<InstallData> = {}, more: Partial<Plan> = {}): Omit<Plan, 'shell'> => ({
  answers: { [`/files/${root.file}`]: content },
  programs,
  ...more,
  edit: script => byDirectory(more.edit?.(script) ?? script),
  data: { root, provision_method: 'http', provision_fallback: 'http', ...data },
  prepare: machine => {
    machine.write('lower/etc/hosts', '127.0.0.1 localhost\n')
    machine.write('lower/etc/os-release', 'ID=test\n')
    machine.write('lower/usr/kept', 'from the file system')
    machine.mkdir('run')
    more.prepare?.(machine, undefined as never)
  }
})

// rules 4.46
for (const shell of shells) {
  t.test(`a root that stays packed, ${shell}`, async t => {
    const done = await install(t, { shell, ...plan() })
    completed(t, done)
    t.match(done.run.mounts, /^svcroot \/sysroot overlay \S*lowerdir=\/run\/svcroot\/lower/m)
    t.notMatch(done.run.mounts, /^\S+ \/run\/svcroot/m, 'the overlay alone is mounted')
    t.match(
      done.machine.text('calls'),
      new RegExp(
        '^open --no-superblock --salt=- --hash=sha256 --data-block-size=4096 --hash-block-size=4096 ' +
          `--data-blocks=2 --hash-offset=8192 /svctmp/image svcroot /svctmp/image ${root.roothash}\\n1\\n$`
      )
    )
    t.equal(done.machine.read('usr/kept'), 'from the file system')
    t.match(done.machine.read('etc/hosts'), /node001/, 'what the installation writes')
    t.match(done.machine.read('var/log/svc-install.log'), /may take \d+ MB of memory/)
    t.match(done.machine.read('etc/svc/running'), /rocky9\.tar\.gz/, 'svcd knows the pack by its tar')

    if (!everyCase(shell)) return
    const wrong = await install(t, {
      shell,
      ...plan({}, { answers: { [`/files/${root.file}`]: 'other bytes' } })
    })
    failed(t, wrong, 'download', /wrong checksum of rocky9-\S+\.squashfs/)
    const refused = { ...programs, veritysetup: 'echo "Verity device detected corruption" >&2; exit 1' }
    const corrupt = await install(t, { shell, ...plan({}, { programs: refused }) })
    failed(t, corrupt, 'unpack', /dm-verity refuses rocky9-\S+: Verity device detected corruption/)
    const without = await install(t, { shell, ...plan({}, { programs: {}, without: ['veritysetup'] }) })
    failed(
      t,
      without,
      'download',
      /veritysetup is not in this initramfs: install it in the image, and pack it/
    )
    const small = plan(
      {},
      {
        edit: script => script.replaceAll('/proc/meminfo', '/meminfo'),
        prepare: machine => machine.write('meminfo', 'MemTotal: 999999 kB\nMemAvailable: 140000 kB\n')
      }
    )
    const full = await install(t, { shell, ...small })
    failed(t, full, 'unpack', /too little memory: 8 MB are free for what the system writes, 64 MB are needed/)
  })

  t.test(`a root that cannot be streamed is fetched whole, ${shell}`, async t => {
    const done = await install(t, { shell, ...plan({ provision_method: 'stream' }, { without: ['nbdkit'] }) })
    completed(t, done)
    t.match(done.run.output, /nbdkit is not in this initramfs: install it in the image, and pack it/)
    t.match(done.run.output, /method 'stream' failed, trying the fallback 'http'/)
  })
}

t.test('a root is streamed by https, but not with svc.pin', async t => {
  const pinned = /nbdkit cannot compare the key of a certificate \(svc\.pin\)/
  for (const [url, pins, isPinned] of [
    ['https://10.141.0.1:7443', '', false],
    ['http://10.141.0.1:7050', 'sha256//eA==', false],
    ['https://10.141.0.1:7443', 'sha256//eA==', true]
  ] as const) {
    const changed = `root_stream() {
      was=$SVC_URL SVC_URL=${url} _PINS=${pins}
      stream_by_url; status=$?
      SVC_URL=$was _PINS=''
      return $status
    }
    stream_by_url() {`
    const edit = (script: string) =>
      script.replace('root_stream() {', changed).replace('persist 8 root_connect', 'false')
    const there = { ...programs, nbdkit: 'exit 1', 'nbd-client': 'exit 1', chroot: 'exit 1' }
    const streamed = plan({ provision_method: 'stream' }, { edit, programs: there })
    const done = await install(t, { shell: 'ash', ...streamed })
    completed(t, done)
    const { output } = done.run
    t.equal(pinned.test(output), isPinned, `${url} ${pins}: ${output}`)
    t.match(output, /method 'stream' failed, trying the fallback 'http'/)
  }
})

t.test('a second run takes down what the first one left', async t => {
  const script = (edit: (text: string) => string): Partial<Plan> => ({ edit })
  const { run, machine } = await install(t, {
    shell: 'ash',
    ...plan(
      {},
      script(
        text => `${text.replace(/install_node\n$/, '')}
      (install_node); mkdir -p /dev/mapper; touch /dev/mapper/svcroot; install_node\n`
      )
    ),
    programs: {
      ...programs,
      veritysetup: `${programs.veritysetup}; [ "$1" != close ] || rm /dev/mapper/svcroot`
    }
  })
  exits(t, [run], [0])
  t.match(machine.text('calls'), /\nclose svcroot\n1\nopen /)
  t.equal(run.mounts.match(/^\S+ \/sysroot /gm)?.length, 1, 'one root')
})

t.test('a root is streamed: nbdkit gets what it needs, and a loop device lies over /dev/nbd0', async t => {
  const libraries = ['/a/libc.so.6', '/a/libcurl.so.4', '/b/ld.so.2']
  const plugins = ['plugins/nbdkit-curl-plugin.so', 'filters/nbdkit-retry-filter.so']
  const needs = [...libraries, ...plugins.map(file => `/x/lib/y/nbdkit/${file}`)]
  const there = {
    ...programs,
    nbdkit: `printf '\\tname => %s (0x1)\\n' ${needs.join(' ')} /a/gone.so`,
    'nbd-client': 'echo "nbd-client $*" >> /calls',
    losetup: `echo "losetup $*" >> /calls; [ "$1" != -f ] || echo /dev/loop7`,
    cp: 'echo "$*" >> /copies; exec /tools/busybox cp "$@"',
    chroot: 'cd "$1" && /tools/busybox find . -type f > /copied'
  }
  const prepare: Plan['prepare'] = machine => {
    for (const file of [...needs, '/etc/resolv.conf', '/sys/block/nbd0/pid'])
      machine.write(file.slice(1), `this is ${file}`)
  }
  // The loader would tell the libraries of the shell that stands for nbdkit.
  const edit = (script: string) =>
    script
      .replace(/LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=\S+/, '')
      .replaceAll('/usr/lib/*/nbdkit', '/x/lib/*/nbdkit')
  const streamed = (more: Partial<Plan>) =>
    install(t, { shell: 'dash', ...plan({ provision_method: 'stream' }, { edit, prepare, ...more }) })
  // A busybox shell would take its own cp.
  const done = await streamed({ programs: there })
  completed(t, done)
  const copied = done.machine.text('copied')
  for (const file of [...needs, '/etc/resolv.conf', '/usr/sbin/@nbdkit'])
    t.match(copied, new RegExp(`^\\.${file}$`, 'm'), file)
  const copies = done.machine.text('copies').split('\n')
  t.strictSame(
    copies.filter(line => line.includes(' /a/')),
    ['-L /a/libc.so.6 /a/libcurl.so.4 /run/svcroot/stream/a']
  )
  t.match(
    done.machine.text('calls'),
    /\nlosetup -f\nlosetup -r \/dev\/loop7 \/dev\/nbd0\nopen .* \/dev\/loop7 svcroot \/dev\/loop7 .*\n1\nlosetup -d \/dev\/loop7\n$/
  )

  const without = await streamed({ programs: { ...there, losetup: 'exit 1' } })
  completed(t, without)
  t.match(without.machine.text('calls'), /open .* \/dev\/nbd0 svcroot \/dev\/nbd0 /)
  t.match(without.run.output, /without a loop device the root asks the controllers more often/)

  const full = await streamed({
    programs: { ...there, cp: 'case $* in *\\ /b/*) echo "cp: no room" >&2; exit 1 ;; esac' }
  })
  completed(t, full)
  t.match(full.run.output, /nbdkit's files in \/b cannot be copied: cp: no room/)
  t.match(full.run.output, /method 'stream' failed, trying the fallback 'http'/)
})
