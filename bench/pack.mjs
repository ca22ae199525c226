// A pack by the system packer (tar, zstd, checksum, and the file durable), next to the same tar, zstd and sha256sum by
// hand: without waiting for the disk, and with `sync` of the file. In turn, medians. The tree of an image may be given;
// else one of 300 MB is made, half of which does not compress.
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { choosePacker } from '../dist/image/packer/choose-packer.js'
import { machine, quantile, row, temporary } from './daemon.mjs'

const ROUNDS = Number(process.env.ROUNDS ?? 5)
const FILES = 6000
const FILE_BYTES = 50_000

const tree = process.argv[2] === undefined ? makeTree() : realpathSync(process.argv[2])
const output = join(temporary, 'output')

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

const TAR =
  "tar --format=posix --sort=name --numeric-owner --acls --selinux --xattrs '--xattrs-include=*' --sparse --one-file-system"
const BY_HAND = `set -e; ${TAR} -C "$1" -cf - . | zstd -T0 -q > "$2"; sha256sum "$2"`

/** In a session of its own as the packer's tar is: on a busy machine the kernel shares its time out by sessions. */
function byHand(script) {
  const words = ['--wait', 'sh', '-c', script, 'sh', tree, output]
  const { status, stderr } = spawnSync('setsid', words, { encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
}

const packer = await choosePacker('system', 'zstd')
const pack = () =>
  packer.pack({
    tree,
    output,
    excludes: [],
    signal: new AbortController().signal,
    timeLimitMs: 3_600_000,
    progress() {},
    line: text => console.error(text)
  })

const series = [
  ['by hand', () => byHand(BY_HAND)],
  ['by hand, and sync of the file', () => byHand(`${BY_HAND}; sync "$2"`)],
  ['system packer (the file is durable)', pack]
]
const results = series.map(() => [])
let bytes
for (let round = -1; round < ROUNDS; round++)
  for (const [i, [, work]] of series.entries()) {
    spawnSync('sync')
    const from = performance.now()
    await work()
    // The round before the first one warms the page cache.
    if (round >= 0) results[i].push(performance.now() - from)
    bytes = statSync(output).size
    rmSync(output)
  }

const source = spawnSync('du', ['--summarize', '--bytes', tree], { encoding: 'utf8' }).stdout.split('\t')[0]
console.log(`${machine()}; a tree of ${source} bytes packed to ${bytes}; ${ROUNDS} rounds in turn\n`)
row('', 'median ms', 'fastest ms', 'longest ms')
for (const [i, [name]] of series.entries())
  row(name, ...[0.5, 0, 1].map(q => quantile(results[i], q).toFixed(0)))
const ratio = (i, q) => `× ${(quantile(results[2], q) / quantile(results[i], q)).toFixed(2)}`
row('system packer to by hand', ratio(0, 0.5), ratio(0, 0))
row('system packer to by hand and sync', ratio(1, 0.5), ratio(1, 0))
process.exit(0)
