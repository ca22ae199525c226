// A pack beside the same tar, zstd and sha256sum by hand. `pack`: the system packer alone, on a tree made for
// it. `pack-again`: a real Debian with dracut in which one file has changed, asked for over http; BENCH_IMAGE
// names a tree to copy, else debootstrap makes one, which is kept in .cache/debian.
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeCluster } from '../cluster.mjs'
import { checkout, startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { here, inTurn, temporary, timed } from '../harness.mjs'

const FILES = 6000
const FILE_BYTES = 50_000
const TAR =
  "tar --format=posix --sort=name --numeric-owner --acls --selinux --xattrs '--xattrs-include=*' --sparse --one-file-system"
const BY_HAND = `set -e; ${TAR} -C "$1" -cf - . | zstd -T0 -q -f > "$2"; sha256sum "$2"; sync "$2"`

function run(command, ...args) {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command}: ${stderr || error}`)
}

/**
 * In a session of its own as the packer's tar is: on a busy machine the kernel shares its time out by
 * sessions.
 */
const byHand = tree =>
  timed(() => run('setsid', '--wait', 'sh', '-c', BY_HAND, 'sh', tree, join(temporary, 'by-hand')))

const beside = rounds => ({ what: 'tar, zstd, sha256sum, sync', rounds })
const seconds = list => list.map(ms => ms / 1000)

/** 300 MB, half of which does not compress. */
function makeTree() {
  const text = Buffer.from('the quick brown fox jumps over the lazy dog '.repeat(FILE_BYTES / 40))
  const made = join(temporary, 'tree')
  for (let i = 0; i < FILES; i++) {
    const directory = join(made, `d${i % 300}`)
    mkdirSync(directory, { recursive: true })
    // From a tenth of the mean size to nearly twice that, so that not all files are alike.
    const half = (FILE_BYTES * (1 + (i % 19))) / 20
    writeFileSync(join(directory, `f${i}`), Buffer.concat([randomBytes(half), text.subarray(0, half)]))
  }
  return made
}

const pack = {
  name: 'pack',
  title: 'a pack of 300 MB by the system packer',
  async run({ rounds }) {
    // A checkout that is compared may be of before the packers moved.
    const [at] = ['helper', 'image']
      .map(room => join(checkout, 'dist', room, 'packer/choose-packer.js'))
      .filter(existsSync)
    const { choosePacker } = await import(at)
    const packer = await choosePacker('system', 'zstd')
    const tree = makeTree()
    const ours = () =>
      timed(() =>
        packer.pack({
          tree,
          output: join(temporary, 'packed'),
          excludes: [],
          signal: new AbortController().signal,
          timeLimitMs: 3_600_000,
          progress() {},
          line: text => console.error(text)
        })
      )
    const work = [
      async () => {
        const ms = await ours()
        rmSync(join(temporary, 'packed'))
        return ms
      },
      () => byHand(tree)
    ]
    await inTurn(1, work)
    const [packed, hand] = await inTurn(rounds, work)
    return [figure('', 's', seconds(packed), { less: true, beside: beside(seconds(hand)) })]
  }
}

const PACKAGES = [
  ...['linux-image-cloud-amd64', 'systemd-sysv', 'udev', 'kmod', 'iproute2', 'curl', 'zstd', 'e2fsprogs'],
  ...['openssh-server', 'dracut', 'isc-dhcp-client']
]

/** A copy of the image's tree, which may be changed. */
async function realTree(to) {
  run(process.execPath, here('../test/compile.mjs'))
  const { debianTree } = await import(here('../.cache/js/test/long/debian-tree.js'))
  run(
    'cp',
    '-a',
    '--one-file-system',
    process.env.BENCH_IMAGE ?? (await debianTree({ packages: PACKAGES })),
    to
  )
}

const packAgain = {
  name: 'pack-again',
  title: 'an image with dracut, packed',
  async run({ rounds }) {
    if (process.getuid() !== 0) throw new Error('only root can make an image and pack it')
    writeCluster(temporary, 100)
    const images = join(temporary, 'images')
    mkdirSync(images)
    const tree = join(images, 'debian')
    await realTree(tree)
    const daemon = await startDaemon(temporary, { settings: { 'image.directory': images } })
    const image = { distribution: 'debian', path: tree }
    await daemon.ask('POST', '/config/osimage/debian', JSON.stringify(image))
    const ask = () => timed(() => daemon.ask('GET', '/config/osimage/debian/_pack'))
    const first = await ask()
    const [again, hand] = await inTurn(rounds, [
      round => {
        writeFileSync(join(tree, 'etc/motd'), `round ${round}\n`)
        return ask()
      },
      () => byHand(tree)
    ])
    return [
      figure('after one file has changed', 's', seconds(again), {
        less: true,
        beside: beside(seconds(hand)),
        target: { atMost: 1.1, ratio: true }
      }),
      figure('the first time, with its initramfs', 's', seconds([first]), { less: true })
    ]
  }
}

export default [pack, packAgain]
