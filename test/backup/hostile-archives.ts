import { createHash } from 'node:crypto'
import { infoText } from '../../lib/backup/archive.js'
import { migrations } from '../../lib/model/migrations.js'
import type { Random } from '../fuzz/random.js'

/** An entry of a tar as somebody may write it: nothing of it has to be right. */
export interface RawEntry {
  readonly path: string
  /** The byte of its type: `0` a file, `2` a symbolic link, `5` a directory, … Default `0`. */
  readonly type?: string
  readonly content?: string | Buffer
  /** What its header says of the size; default: the truth. */
  readonly size?: number
  readonly link?: string
  readonly mode?: number
  /** Records of an extended header before it. */
  readonly pax?: Readonly<Record<string, string>>
}

const BLOCK = 512

/** The bytes of an entry, its extended header before it. */
export function rawEntry(entry: RawEntry): Buffer {
  const { path, type = '0', link = '', mode = 0o644, pax } = entry
  const content = Buffer.from(entry.content ?? '')
  const block = Buffer.alloc(BLOCK)
  block.write(path.slice(0, 100), 0)
  const octal = (value: number, at: number, length: number) =>
    block.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at, 'latin1')
  octal(mode, 100, 8)
  octal(65534, 108, 8)
  octal(65534, 116, 8)
  const size = entry.size ?? content.length
  if (size >= 0) octal(size, 124, 12)
  else block.fill(0xff, 124, 136)
  octal(1_700_000_000, 136, 12)
  block.write(type, 156, 1, 'latin1')
  if (type === '1' || type === '2') block.write(link.slice(0, 100), 157)
  block.write('ustar\u000000', 257, 'latin1')
  octal(1, 329, 8)
  octal(1, 337, 8)
  block.write('        ', 148, 'latin1')
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    7
  )
  const body = Buffer.alloc(Math.ceil(content.length / BLOCK) * BLOCK)
  content.copy(body)
  const before = pax ? rawEntry({ path: 'PaxHeader', type: 'x', content: records(pax) }) : Buffer.alloc(0)
  return Buffer.concat([before, block, body])
}

/** Records of an extended header, each with its length before it. */
export function records(of: Readonly<Record<string, string>>): string {
  return Object.entries(of)
    .map(([key, value]) => {
      const rest = ` ${key}=${value}\n`
      let length = Buffer.byteLength(rest)
      for (let digits = 0; digits !== `${length}`.length; length = Buffer.byteLength(rest) + digits)
        digits = `${length}`.length
      return `${length}${rest}`
    })
    .join('')
}

/** A backup with these bytes before its checksum, which is right. */
export function sealed(body: Buffer): Buffer {
  const digest = `${createHash('sha256').update(body).digest('hex')}\n`
  return Buffer.concat([body, rawEntry({ path: 'sha256', content: digest }), Buffer.alloc(2 * BLOCK)])
}

/** What a small backup with images holds. */
export const plain: readonly RawEntry[] = [
  {
    path: 'backup.json',
    content: infoText({ version: migrations('').length, release: '1.0.0', images: true })
  },
  { path: 'config/svcd.ini', content: '# of the backup\n' },
  { path: 'config/roles/login', content: '#!/bin/sh\n', mode: 0o755 },
  { path: 'state/admin-password', content: 'of the backup\n' },
  { path: 'state/layout/version.json', content: '{"version":1}' },
  { path: 'state/network/cluster.json', content: '{}' },
  { path: 'files/compute.tar.gz', content: 'packed' },
  { path: 'images/compute/', type: '5', mode: 0o755 },
  { path: 'images/compute/etc/', type: '5', mode: 0o755 },
  { path: 'images/compute/etc/hostname', content: 'node\n' }
]

/** The same without images and packed files. */
export const bare = plain.filter(({ path }) => !/^(images|files)\//.test(path))

/** A backup of these entries. */
export const archiveOf = (entries: readonly RawEntry[]): Buffer =>
  sealed(Buffer.concat(entries.map(rawEntry)))

/**
 * A generated backup: a plain one with some entries that nobody should have put there; `outside`: where they
 * try to lead.
 */
export function generated(random: Random, outside: string): Buffer {
  const entries: RawEntry[] = random.is(0.2) ? [...bare] : [...plain]
  // Half of them hold what an image may hold, so that they come as far as the disk.
  if (random.is(0.5)) for (let i = random.below(6); i >= 0; i--) entries.push(imageEntry(random, outside))
  else
    for (let i = random.below(4); i >= 0; i--)
      entries.splice(random.below(entries.length + 1), 0, hostileEntry(random, outside))
  if (random.is(0.5)) return archiveOf(entries)
  if (random.is(0.1)) entries.splice(random.below(entries.length), 1)
  let body = Buffer.concat(entries.map(rawEntry))
  if (random.is(0.1)) body = body.subarray(0, random.below(body.length / BLOCK) * BLOCK)
  if (random.is(0.05)) body = body.subarray(0, random.below(body.length))
  if (random.is(0.05)) body[random.below(body.length)] = random.below(256)
  if (random.is(0.05)) body = Buffer.concat([body, Buffer.alloc(BLOCK * (1 + random.below(3)))])
  if (random.is(0.02))
    body = Buffer.concat([body, rawEntry({ path: 'sha256', content: 'x' }), Buffer.alloc(1024), body])
  return sealed(body)
}

/**
 * Something in an image: its names are few, so that one is often a link before it is a directory or a file.
 */
function imageEntry(random: Random, outside: string): RawEntry {
  const names = ['a', 'b', 'etc', 'etc/hostname', 'a/b', 'a/below', 'b/kept', 'a/below/kept', 'etc/kept']
  const path = `images/${random.pick(['compute', 'compute', 'other'])}/${random.pick(names)}`
  const link = random.pick([
    ...[
      outside,
      `${outside}/kept`,
      '../../../outside',
      '../../../outside/kept',
      '..',
      '../..',
      'a',
      'b',
      '/'
    ],
    ...names.map(name => `images/compute/${name}`)
  ])
  const pax = random.is(0.2) ? { pax: hostileRecords(random, outside, path) } : {}
  const type = random.pick(['0', '0', '1', '2', '2', '2', '3', '5', '6'])
  const mode = random.pick([0o644, 0o4755, 0o1777])
  const content = type === '0' ? 'planted\n' : ''
  return { path: type === '5' ? `${path}/` : path, type, link, mode, content, ...pax }
}

const tops = ['state', 'config', 'files', 'images']
const types = [
  '0',
  '0',
  '1',
  '1',
  '2',
  '2',
  '2',
  '3',
  '4',
  '5',
  '6',
  '7',
  'g',
  'L',
  'K',
  'S',
  'D',
  'M',
  'V',
  'N',
  '\0',
  'A'
]

function hostileEntry(random: Random, outside: string): RawEntry {
  const path = hostilePath(random, outside)
  const type = random.pick(types)
  const link = random.pick([
    outside,
    `${outside}/kept`,
    '../../../outside',
    '../../outside',
    '../outside/kept',
    '/',
    '.',
    '..',
    'images/compute',
    'images/compute/etc/hostname',
    'state/admin-password',
    '/proc/self/root',
    'compute'
  ])
  const content = random.is(0.6)
    ? random.pick([
        'planted\n',
        '',
        'x'.repeat(random.below(2000)),
        rawEntry({ path: 'config/roles/smuggled', content: 'x' })
      ])
    : ''
  const size = random.is(0.1)
    ? random.pick([0, 1, 511, 512, 513, 2 ** 20, 2 ** 32, 2 ** 33 - 1, -1])
    : undefined
  const told = size === undefined ? {} : { size }
  const pax = random.is(0.3) ? { pax: hostileRecords(random, outside) } : {}
  const mode = random.pick([0o644, 0o600, 0o4755, 0o6777, 0o1777, 0, 0o7777])
  return {
    path,
    type,
    link,
    content: type === 'g' ? records(hostileRecords(random, outside)) : content,
    mode,
    ...told,
    ...pax
  }
}

function hostilePath(random: Random, outside: string): string {
  const top = random.pick(tops)
  return random.pick([
    () => top,
    () => `${top}/`,
    () => `./${top}/x`,
    () => `${top}/../../outside/kept`,
    () => `${top}/./x`,
    () => `${top}//x`,
    () => `${top}/x/..`,
    () => `${outside}/kept`,
    () => `/${top}/x`,
    () =>
      `images/${random.pick(['x', 'x/', 'compute', 'compute/', '.svcd-0123456789abcdef', '.restore.part', 'a\nb', 'a\u00ff', '-x', '--checkpoint-action=exec=x'])}`,
    () =>
      `images/compute/${random.pick(['x', 'etc', 'etc/', 'x/y', 'etc/hostname', `${'n'.repeat(60)}\n10 size=0`, '..', 'x/'])}`,
    () => `images/x/${random.pick(['y', 'y/z', 'outside/kept'])}`,
    () => `files/${random.pick(['x', 'compute.tar.gz', 'sub/x', 'sub', 'sub/', '.hidden', '-x', 'a\nb'])}`,
    () =>
      `state/${random.pick(['node', 'node/x', 'node/', 'network', 'network/cluster.json', 'admin-password', 'secret.key', 'lock', 'replaced/x', 'images/x', 'restore.ready/x', 'jobs/a\nb', 'ssh/id'])}`,
    () =>
      `config/${random.pick(['svcd.ini', 'svcd.ini/x', 'roles', 'roles/x', 'roles/login', 'roles/../x', 'templates/boot', 'named/ssh.key', 'other', 'scripts/a\nb'])}`,
    () => random.pick(['backup.json', 'sha256', '', '/', '.', '..', 'x', 'image/x', '\u00ff'])
  ])()
}

function hostileRecords(random: Random, outside: string, path?: string): Record<string, string> {
  const found: Record<string, string> = {}
  for (let i = random.below(3); i >= 0; i--)
    Object.assign(
      found,
      random.pick<() => Record<string, string>>([
        () => ({ path: path ?? hostilePath(random, outside) }),
        () => ({ linkpath: `${outside}/kept` }),
        () => ({ size: random.pick(['0', '512', '99999999999', '-1', 'x', '1e9', '0x10']) }),
        () => ({ 'SCHILY.xattr.user.x': `a\n10 size=0\n${records({ path: 'config/roles/smuggled' })}` }),
        () => ({
          'GNU.sparse.major': '1',
          'GNU.sparse.minor': '0',
          'GNU.sparse.name': hostilePath(random, outside)
        }),
        () => ({ 'GNU.sparse.realsize': '1099511627776' }),
        () => ({ uid: '0', gid: '0', mode: '4755' }),
        () => ({ comment: 'x'.repeat(random.below(3000)) }),
        () => ({ 'a=b': '\0', mtime: 'x' })
      ])()
    )
  return found
}
