import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  appendFileSync,
  closeSync,
  cpSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
  writeSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { aria2, forSeeders, openTracker } from '../image/servers.js'
import { makeCertificate } from '../support/certificate.js'
import { Daemon } from '../support/daemon.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { plain, runMachine, tail } from '../support/virtual-machine.js'
import { imageTree, reported, reporting, systemOptions, type Tool } from './debian-image.js'

// A Debian of some 1 GB whose root is unpacked, fetched whole in a squashfs, and streamed, over 200 Mbit/s: the
// memory, the time and the bytes of each; by torrent, and by https; flipped bytes; controllers that die. Half
// an hour. Some of it runs alone with SVCD_ROOTS, a word of a title; SVCD_ROOTS_TOOL=dracut builds the
// initramfs by dracut, SVCD_ROOTS_FORMAT=erofs takes the other format, SVCD_ROOTS_ROUNDS=5 measures so often,
// SVCD_ROOTS_KEYS=given gives the nodes ssh host keys: RSA's take an emulated CPU a quarter of a minute.

const tool = (process.env.SVCD_ROOTS_TOOL ?? 'initramfs-tools') as Tool
const format = process.env.SVCD_ROOTS_FORMAT ?? 'squashfs'
const rounds = Number(process.env.SVCD_ROOTS_ROUNDS ?? 1)
const hasKeys = process.env.SVCD_ROOTS_KEYS === 'given'
const chosen = new RegExp(process.env.SVCD_ROOTS ?? '')
const megabytes = Number(process.env.SVCD_ROOTS_MB ?? 700)
const mac = (n: number) => `52:54:00:14:02:${10 + n}`
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** The system runs this when it is up: it reports, and then reads slowly or at once, as /etc/what says. */
const more = `#!/bin/sh
number() { sed -n "s/^$1: *\\([0-9]*\\) kB/\\1/p" /proc/meminfo; }
echo "REPORT memory $((($(number MemTotal) - $(number MemAvailable)) / 1024)) MB used, Shmem $(($(number Shmem) / 1024)) MB"
echo "REPORT device $(lsblk -rno NAME,TYPE 2>/dev/null | tr '\\n' ' ')"
echo "REPORT kept $(head -c 40 /var/log/svc-install.log | tr '\\n' ' ')"
echo "REPORT figures"
case $(cat /etc/what 2>/dev/null) in
  slow)
    for i in $(seq 8); do
      echo 3 >/proc/sys/vm/drop_caches
      dd if=/srv/data/random bs=1M skip=$((i * 20)) count=20 of=/dev/null 2>/dev/null || echo "REPORT error $i"
      echo "REPORT read $i"
      sleep 2
    done
    sha256sum /srv/data/random | sed 's/^/REPORT sum /'
    ;;
  all) echo "REPORT all $(cat /srv/data/random 2>&1 >/dev/null | tr '\\n' ' ')" ;;
esac
`

/** lsblk shows a streamed root as a loop device, and the device that this one reads. */
const loopOverNbd = /loop0 loop.* nbd0 disk/

/** Packages of an image whose root is streamed. */
const packages = ['cryptsetup-bin', 'nbdkit', 'nbd-client', 'aria2', 'ca-certificates']

/** Fills a tree: what compresses, what does not, large and small files. */
function fill(tree: string): string {
  const data = join(tree, 'srv/data')
  mkdirSync(data, { recursive: true })
  const random = openSync(join(data, 'random'), 'w')
  const half = Math.floor(megabytes / 2)
  for (let i = 0; i < half; i++) writeSync(random, randomBytes(1 << 20))
  closeSync(random)
  const words = execFileSync('sh', ['-c', `cat ${tree}/usr/share/doc/*/copyright | head -c 1048576`], {
    maxBuffer: 1 << 21
  })
  for (let i = 0; i < half; i++) writeFileSync(join(data, `text-${i}`), `${i}\n${words.toString('latin1')}`)
  writeFileSync(join(tree, 'usr/local/sbin/svcd-report-more'), more, { mode: 0o755 })
  return execFileSync('sha256sum', [join(data, 'random')], { encoding: 'utf8' }).split(' ')[0] ?? ''
}

/** Shows a line in the report, and keeps it where the report of a test that passes is not shown. */
function told(line: string): void {
  t.comment(line)
  appendFileSync(join(checkout, '.cache/small-roots.txt'), `${new Date().toISOString()} ${line}\n`)
}

/** Copies the objects and the packs of a controller for another machine. */
function copyOf(from: string, to: string): void {
  mkdirSync(to)
  for (const part of ['state', 'files']) cpSync(join(from, part), join(to, part), { recursive: true })
}

/** Arguments of qemu for the kernel that a boot script names, with its initramfs and arguments. */
function kernelOf(script: string, files: string): string[] {
  const word = (name: string) => new RegExp(`/boot/(${name}\\S*)`).exec(script)?.[1] ?? ''
  const options = /^imgargs kernel (.*) \|\| goto failed$/m.exec(script)?.[1] ?? ''
  const [kernel, initrd] = [word('compute-[^ ]*vmlinuz'), word('compute-[^ ]*initr')]
  return ['-kernel', join(files, kernel), '-initrd', join(files, initrd), '-append', options]
}

/** Returns where a root holds the middle of a file that does not compress. */
function placeIn(root: string, file: string): number {
  const size = statSync(file).size
  const wanted = Buffer.alloc(64)
  const from = openSync(file, 'r')
  readSync(from, wanted, 0, wanted.length, Math.floor(size / 2))
  closeSync(from)
  const fd = openSync(root, 'r')
  const buffer = Buffer.alloc(1 << 23)
  const step = buffer.length - wanted.length
  try {
    for (let start = 0; start < statSync(root).size; start += step) {
      const at = buffer.subarray(0, readSync(fd, buffer, 0, buffer.length, start)).indexOf(wanted)
      if (at !== -1) return start + at
    }
  } finally {
    closeSync(fd)
  }
  throw new Error(`${root} does not hold the bytes of ${file}`)
}

/** Flips a byte of a file. */
function flip(file: string, at: number): void {
  const fd = openSync(file, 'r+')
  const byte = Buffer.alloc(1)
  readSync(fd, byte, 0, 1, at)
  writeSync(fd, Buffer.from([(byte[0] ?? 0) ^ 1]), 0, 1, at)
  closeSync(fd)
}

t.test('roots that are small', { timeout: 3 * 3_600_000 }, async t => {
  requirePrograms('debootstrap', 'zstd', 'tar', 'mksquashfs', 'veritysetup', 'tc')
  const directory = scratch(t)
  const titles = [
    ...['tar', 'whole', 'streamed', 'dying', 'flipped memory', 'flipped whole', 'flipped stream'],
    ...['torrent', 'https whole', 'https streamed', 'other key', 'second run']
  ]
  const network = await startNetwork(
    titles.map((_, i) => ({ mac: mac(i + 1), ipaddress: `10.141.0.${11 + i}` }))
  )
  t.teardown(() => network.close())
  await output('ip', ['-n', network.namespace, 'address', 'add', '10.141.0.2/24', 'dev', 'br0'])
  const common = { enter: network.enter, set: ['http.url=http://10.141.0.1:7050,http://10.141.0.2:7050'] }
  const place = { enter: network.enter, address: '10.141.0.1' }
  const tracker = await openTracker(t, place)
  await tracker.start()
  const seeder = await aria2(t, place)
  await seeder.start()
  const torrent = [
    `torrent.tracker=http://10.141.0.1:${tracker.port}/announce`,
    `torrent.whitelist=${tracker.whitelist}`,
    `torrent.tracker_reload=${tracker.reload.join(' ')}`,
    ...['torrent.seeder=aria2', `torrent.seeder_url=${seeder.url}`, 'torrent.seeder_secret=swordfish']
  ]
  const controller = await Daemon.start({
    ...{ ...common, directory, listen: '10.141.0.1:7050', set: [...common.set, ...torrent] }
  })
  t.teardown(() => controller.stop())
  await forSeeders(join(directory, 'files'))
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('osimage', 'compute', {
    ...{ distribution: 'debian', kerneloptions: systemOptions, root_format: format }
  })
  const tree = join(directory, 'images/compute')
  await output('cp', ['-a', '-x', await imageTree({ tool, packages }), tree], { timeout: 600_000 })
  await reporting(tree)
  const secret = await makeCertificate(directory, 'secret', 90, '/CN=secret', ['10.141.0.3'])
  const stranger = await makeCertificate(directory, 'stranger', 90, '/CN=stranger', ['10.141.0.3'])
  cpSync(secret.certificate, join(tree, 'usr/local/share/ca-certificates/site.crt'))
  await output('chroot', [tree, 'update-ca-certificates'])
  const sum = fill(tree)
  await output('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(directory, 'ssh_host_ed25519_key')])
  const [unpacked = ''] = (await output('du', ['-sm', tree])).split('\t')
  const start = Date.now()
  const { status, body } = await controller.request('GET', '/config/osimage/compute/_pack', undefined, 1800)
  if (status !== 204) throw new Error(`${status} ${JSON.stringify(body)}`)
  const files = readdirSync(join(directory, 'files'))
  const sizes = execFileSync('sh', ['-c', `ls -l ${directory}/files | awk '{ print $5, $9 }'`], {
    encoding: 'utf8'
  })
  told(
    `${unpacked} MB unpacked, packed in ${Math.round((Date.now() - start) / 1000)} s: ${sizes.replace(/\n/g, '; ')}`
  )
  const root = join(directory, 'files', files.find(name => name.endsWith(`.${format}`)) ?? '')
  const inRandom = placeIn(root, join(tree, 'srv/data/random'))

  // The same objects and files on a second machine.
  const second = join(directory, 'second')
  await controller.settled()
  await controller.stop()
  copyOf(directory, second)
  await controller.start()
  const other = await Daemon.start({ ...common, directory: second, listen: '10.141.0.2:7050' })
  t.teardown(() => other.stop())

  const inside = (...command: string[]) => {
    const [program = '', ...args] = [...network.enter, ...command]
    return execFileSync(program, args, { encoding: 'utf8' })
  }
  const sent = (tap: string) => Number(inside('cat', `/sys/class/net/${tap}/statistics/tx_bytes`))

  /**
   * Runs a node; the figures are those between its install script and the system that is up. `by`: a controller
   * with https, which the card's iPXE does not have: qemu loads kernel and initramfs.
   */
  const boot = async (
    title: string,
    fields: object,
    end: RegExp,
    onLine: (line: string) => void = () => {},
    by?: Daemon
  ) => {
    const i = titles.indexOf(title) + 1
    const name = `node0${10 + i}`
    const asked = by ?? controller
    await asked.create('node', name, {
      ...{ osimage: 'compute', macaddr: mac(i), provision_method: 'http' },
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.${10 + i}` }],
      ...fields
    })
    for (const leaf of hasKeys ? ['ssh_host_ed25519_key', 'ssh_host_ed25519_key.pub'] : []) {
      const secret = {
        name: leaf,
        path: `/etc/ssh/${leaf}`,
        content: base64(readFileSync(join(directory, leaf), 'utf8'))
      }
      const { status } = await asked.request('POST', `/config/secrets/node/${name}`, [secret])
      if (status !== 201) throw new Error(`the secret ${leaf}: ${status}`)
    }
    await asked.settled()
    const tap = network.tap(mac(i))
    await output(
      'ip',
      ['netns', 'exec', network.namespace, 'tc', 'qdisc', 'replace', 'dev', tap, 'root'].concat([
        ...['tbf', 'rate', '200mbit', 'burst', '256k', 'latency', '200ms']
      ])
    )
    const figures = { seconds: 0, moved: 0, used: 0 }
    let from = { at: 0, bytes: 0 }
    const run = await runMachine({
      ...{
        name,
        mac: mac(i),
        network: { tap },
        enter: network.enter,
        memoryMiB: 4096,
        timeLimitMs: 1_200_000
      },
      devices: by
        ? kernelOf(
            inside('curl', '-sf', `http://10.141.0.3:7050/boot/search/mac/${mac(i)}`),
            by.path('files')
          )
        : [],
      until: end,
      onLine: line => {
        if (/svc: running the install script/.test(line)) from = { at: Date.now(), bytes: sent(tap) }
        if (/REPORT figures/.test(line)) {
          figures.seconds = (Date.now() - from.at) / 1000
          figures.moved = (sent(tap) - from.bytes) / 1e6
        }
        onLine(line)
      }
    })
    const console = plain(run.console)
    if (figures.seconds > 0)
      told(
        `${title === 'tar' ? '' : `${format} `}${title}: ${reported(console, 'memory')}; ${figures.seconds.toFixed(1)} s from script to running; ` +
          `${figures.moved.toFixed(1)} MB moved; root ${reported(console, 'root')}; ${reported(console, 'state')}`
      )
    figures.used = Number.parseInt(reported(console, 'memory') ?? '', 10)
    return { console, name, figures, about: { console: tail(run.console) } }
  }
  const done = /REPORT done .*\n/
  const some = (title: string, work: (t: Test) => Promise<void>) =>
    chosen.test(title) ? t.test(title, work) : undefined

  for (const [title, fields, form] of [
    ['tar', { root_format: 'tar' }, /^tmpfs/],
    ['whole', {}, /^overlay/],
    ['streamed', { provision_method: 'stream' }, /^overlay/]
  ] as const)
    await some(title, async t => {
      const all: { seconds: number; moved: number; used: number }[] = []
      for (let round = 0; round < rounds; round++) {
        const { console, name, figures, about } = await boot(title, fields, done)
        all.push(figures)
        t.match(reported(console, 'root'), form, 'its root', about)
        t.equal(reported(console, 'state'), 'running', 'no unit failed', about)
        t.match(reported(console, 'kept'), /^svc: /, 'the log of its installation', about)
        t.match(reported(console, 'ssh'), /^active ssh-ed25519 \S{60,}/, 'its keys', about)
        await controller.request('POST', `/config/node/${name}/_delete`)
      }
      const median = (key: 'seconds' | 'moved' | 'used') => {
        const sorted = all.map(one => one[key]).sort((a, b) => a - b)
        return sorted[Math.floor(sorted.length / 2)]?.toFixed(1)
      }
      const kind = `${title === 'tar' ? title : `${format} ${title}`}${hasKeys ? ' (keys given)' : ''}`
      told(
        `= ${kind}, median of ${rounds}: ${median('used')} MB used, ${median('moved')} MB moved, ${median('seconds')} s`
      )
    })

  await some('torrent', async t => {
    const fields = { provision_method: 'torrent', provision_fallback: 'torrent' }
    const { console, figures, about } = await boot('torrent', fields, done)
    t.match(reported(console, 'root'), /^overlay/, 'its root', about)
    t.equal(reported(console, 'state'), 'running', 'no unit failed', about)
    t.ok(figures.moved > statSync(root).size / 1e6, 'the controller seeded it')
  })

  // A third machine with a certificate that the image knows, whose URL for nodes has https.
  if (['https whole', 'https streamed', 'other key'].some(title => chosen.test(title))) {
    const third = join(directory, 'third')
    await output('ip', ['-n', network.namespace, 'address', 'add', '10.141.0.3/24', 'dev', 'br0'])
    copyOf(second, third)
    const pair = { certificate: join(third, 'tls.crt'), key: join(third, 'tls.key') }
    const take = (from: typeof pair) => {
      cpSync(from.key, pair.key)
      cpSync(from.certificate, pair.certificate)
    }
    take(secret)
    const tls = [`http.tls_certificate=${pair.certificate}`, `http.tls_key=${pair.key}`]
    const secure = await Daemon.start({
      ...{ enter: network.enter, directory: third, listen: '10.141.0.3:7050' },
      set: ['http.url=https://10.141.0.3:7443', ...tls]
    })
    t.teardown(() => secure.stop())
    for (const [title, fields] of [
      ['https whole', {}],
      ['https streamed', { provision_method: 'stream' }]
    ] as const)
      await some(title, async t => {
        const { console, about } = await boot(title, fields, done, undefined, secure)
        t.match(reported(console, 'root'), /^overlay/, 'its root', about)
        t.equal(reported(console, 'state'), 'running', 'no unit failed', about)
        t.match(
          reported(console, 'device'),
          title === 'https whole' ? /loop0/ : loopOverNbd,
          'its device',
          about
        )
      })
    // From the report on, another machine answers at that address: the root waits, and reads nothing of it.
    await some('other key', async t => {
      const seen: string[] = []
      const steps: Promise<unknown>[] = []
      const word = { postscript: base64('echo slow > "$_SYSTEMROOT/etc/what"'), provision_method: 'stream' }
      const change = async (from: typeof pair) => {
        await secure.stop()
        take(from)
        await secure.start()
      }
      const onLine = (line: string) => {
        const [, read] = /REPORT read (\d)/.exec(line) ?? []
        if (read === undefined) return
        seen.push(read)
        if (read === '3')
          steps.push(
            change(stranger).then(async () => {
              await new Promise(resolve => setTimeout(resolve, 45_000))
              t.notOk(seen.includes('6'), 'it reads nothing from a stranger')
              await change(secret)
            })
          )
      }
      const { console, about } = await boot('other key', word, done, onLine, secure)
      await Promise.all(steps)
      t.strictSame(seen, ['1', '2', '3', '4', '5', '6', '7', '8'], 'it goes on', about)
      t.match(reported(console, 'sum'), new RegExp(`^${sum} `), 'what it read is right', about)
    })
    await secure.stop()
  }

  await some('dying', async t => {
    const seen: string[] = []
    const steps: Promise<unknown>[] = []
    const word = { postscript: base64('echo slow > "$_SYSTEMROOT/etc/what"'), provision_method: 'stream' }
    const { console, about } = await boot('dying', word, done, line => {
      const [, read] = /REPORT read (\d)/.exec(line) ?? []
      if (read === undefined) return
      seen.push(read)
      if (read === '1') steps.push(controller.kill().then(() => told('the first controller is dead')))
      if (read === '4')
        steps.push(
          other.kill().then(async () => {
            told('both are dead')
            await new Promise(resolve => setTimeout(resolve, 45_000))
            t.notOk(seen.includes('6'), 'it waits')
            await other.start()
            told('the second one is back')
          })
        )
    })
    await Promise.all(steps)
    t.match(reported(console, 'root'), /^overlay/, 'its root', about)
    t.equal(reported(console, 'state'), 'running', 'no unit failed', about)
    t.strictSame(seen, ['1', '2', '3', '4', '5', '6', '7', '8'], 'it goes on by the other one', about)
    t.notMatch(console, /REPORT error/, 'without an error', about)
    t.match(reported(console, 'sum'), new RegExp(`^${sum} `), 'what it read is right', about)
    await controller.start()
  })

  // The second run takes down all that the first one has mounted and connected, and streams anew.
  await some('second run', async t => {
    const script = 'test -e /run/svc-second || { touch /run/svc-second; exit 1; }'
    const word = { postscript: base64(script), provision_method: 'stream' }
    const { console, about } = await boot('second run', word, done)
    t.match(console, /FAILED in step postscript[\s\S]*trying again in 2 s/, 'the first run failed', about)
    t.notMatch(console, /method 'stream' failed|without a loop device/, 'the second one streams', about)
    t.match(reported(console, 'root'), /^overlay/, 'its root', about)
    t.match(reported(console, 'device'), loopOverNbd, 'its device', about)
    t.equal(reported(console, 'state'), 'running', 'no unit failed', about)
  })

  await some('flipped memory', async t => {
    const script = `echo all > "$_SYSTEMROOT/etc/what"
      printf xyz | dd of=/svctmp/image bs=1 seek=${inRandom} conv=notrunc`
    const { console, about } = await boot('flipped memory', { postscript: base64(script) }, done)
    t.match(reported(console, 'all'), /Input\/output error/, 'an I/O error', about)
  })

  flip(root, inRandom)
  await some('flipped whole', async t => {
    const { console, name, about } = await boot('flipped whole', {}, /trying again in 2 s/)
    t.match(console, /wrong checksum of compute-\S+\.(?:squashfs|erofs)/, 'it is refused', about)
    t.match((await controller.monitor(name)).state, /^installer\.failed: download: .*wrong checksum/)
  })
  flip(root, inRandom)
  await some('flipped stream', async t => {
    for (const at of [root, join(second, 'files', root.split('/').at(-1) ?? '')]) flip(at, inRandom)
    const word = { postscript: base64('echo all > "$_SYSTEMROOT/etc/what"'), provision_method: 'stream' }
    const { console, about } = await boot('flipped stream', word, done)
    t.match(reported(console, 'all'), /Input\/output error/, 'an I/O error', about)
  })
})
