import { truncateSync } from 'node:fs'
import { readdir, readFile, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import t from 'tap'
import { replaceAmongOthers } from '../../../lib/disk/file.js'
import {
  createTorrent,
  decode,
  encode,
  pieceLength,
  readInfoHash
} from '../../../lib/image/torrent/torrent.js'
import { output, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'

requirePrograms('transmission-show', 'transmission-create', 'aria2c')

const announce = 'http://10.141.0.1:6969/announce'
const never = new AbortController().signal
const random = (bytes: number) => {
  const data = Buffer.alloc(bytes)
  for (let i = 0; i < bytes; i += 7) data[i] = (i * 2654435761) >>> 13
  return data
}

// rules 9.10
t.test('a torrent is what transmission and aria2 take it for', async t => {
  const root = scratch(t)
  const sizes = {
    'one.tar': 1,
    'exact.tar.zst': 1 << 20,
    'over it é.tar.gz': (1 << 20) + 1,
    "q'u$(x);.tar": 99
  }
  for (const [name, bytes] of Object.entries(sizes)) {
    const file = join(root, name)
    const made = join(root, 'made.torrent')
    await writeFile(file, random(bytes))
    const { infoHash } = await createTorrent({ file, name, announce, output: made, signal: never })
    t.match(infoHash, /^[0-9a-f]{40}$/)
    t.equal(await readInfoHash(made), infoHash)
    const shown = await output('transmission-show', [made])
    t.match(shown, `Hash: ${infoHash}`, 'the info hash as transmission counts it')
    t.match(shown, 'Privacy: Private torrent')
    t.ok(shown.includes(`Name: ${name}\n`), 'its name')
    t.ok(shown.includes(announce), 'its tracker')
    t.match(await output('aria2c', ['--no-conf', '-S', made]), `Info Hash: ${infoHash}`)
    // The same pieces as those that another program counts: one bit elsewhere, and the hash is another.
    const theirs = join(root, 'theirs.torrent')
    await output('transmission-create', ['-p', '-s', '256', '-t', announce, '-o', theirs, file])
    t.equal(await readInfoHash(theirs), infoHash)
    const first = await readFile(made)
    await createTorrent({ file, name, announce, output: made, signal: never })
    t.strictSame(await readFile(made), first, 'made again, it is the same')
    t.equal((await stat(made)).mode & 0o777, 0o600)
  }
  t.notOk(
    (await readdir(root)).some(name => name.startsWith('.')),
    'nothing temporary stays'
  )
})

t.test('pieces of a large image', async t => {
  const gib = 1 << 30
  t.equal(pieceLength(1), 256 << 10)
  t.equal(pieceLength(gib / 2), 256 << 10)
  t.equal(pieceLength(gib), 512 << 10)
  t.equal(pieceLength(5 * gib), 4 << 20)
  t.equal(pieceLength(500 * gib), 32 << 20)
})

t.test('the event loop goes on while a large file is hashed', async t => {
  const root = scratch(t)
  const file = join(root, 'large.tar')
  await writeFile(file, '')
  await truncate(file, 256 << 20)
  let turns = 0
  const timer = setInterval(() => turns++, 1)
  await createTorrent({ file, name: 'large.tar', announce, output: join(root, 'x.torrent'), signal: never })
  clearInterval(timer)
  t.ok(turns > 20, `${turns} turns meanwhile`)
})

t.test('no torrent is made of what is none', async t => {
  const root = scratch(t)
  const output = join(root, 'x.torrent')
  const of = (file: string, signal = never) => createTorrent({ file, name: 'x', announce, output, signal })
  await writeFile(join(root, 'empty'), '')
  await t.rejects(of(join(root, 'empty')), { message: /empty is empty/ })
  await t.rejects(of(join(root, 'none')), { code: 'ENOENT' })
  await writeFile(join(root, 'file'), random(9))
  await t.rejects(of(join(root, 'file'), AbortSignal.abort()), { name: 'AbortError' })
  await t.rejects(
    createTorrent({
      file: join(root, 'file'),
      name: 'x',
      announce,
      output: join(root, 'no/x'),
      signal: never
    }),
    { code: 'ENOENT' }
  )
  const file = join(root, 'growing')
  await writeFile(file, random(2 << 20))
  const { signal } = new AbortController()
  // Asked before each piece.
  Object.defineProperty(signal, 'throwIfAborted', { value: () => truncateSync(file, 1 << 20) })
  await t.rejects(of(file, signal), { message: /growing changed while its torrent was made/ })
  t.strictSame((await readdir(root)).sort(), ['empty', 'file', 'growing'], 'and nothing stays')
})

t.test('what is no torrent is refused with its name', async t => {
  const root = scratch(t)
  const wrong = [
    '',
    'i1e',
    'd',
    'd4:infoi1ee',
    'le',
    'd4:info',
    '5:abc',
    `${'l'.repeat(100)}${'e'.repeat(100)}`
  ]
  for (const text of [
    ...wrong,
    'd4:infod6:lengthi99999999999999999999eee',
    'i-0e',
    'i01e',
    '01:a',
    'dei1e'
  ]) {
    const file = join(root, 'bad.torrent')
    await writeFile(file, text)
    await t.rejects(readInfoHash(file), { message: /torrent .*bad\.torrent cannot be used/ }, basename(file))
  }
  const value = new Map([
    ['b', [1, Buffer.from('\0é')]],
    ['a', -5]
  ] as [string, never][])
  t.equal(encode(value).toString('latin1'), 'd1:ai-5e1:bli1e3:\0\u00c3\u00a9ee')
  t.strictSame(decode(encode(value)), new Map([...value].reverse()))
})

t.test('a file is replaced, a link of its name is not followed', async t => {
  const root = scratch(t)
  await writeFile(join(root, 'precious'), 'precious')
  await symlink(join(root, 'precious'), join(root, 'link'))
  await replaceAmongOthers(join(root, 'link'), 'new', 0o644)
  t.equal(await readFile(join(root, 'precious'), 'utf8'), 'precious')
  t.equal(await readFile(join(root, 'link'), 'utf8'), 'new')
  t.equal((await stat(join(root, 'link'))).mode & 0o777, 0o644)
})
