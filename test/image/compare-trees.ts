import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  type BigIntStats,
  closeSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync
} from 'node:fs'
import { promisify } from 'node:util'
import { programEnv } from '../support/programs.js'

const run = promisify(execFile)

/** What is compared; everything is but what is false here. */
export interface Compared {
  /** Extended attributes: user, trusted, security (capabilities, labels) and access control lists. */
  readonly attributes?: boolean
  /** Modification times to the nanosecond; false: to the millisecond. */
  readonly nanoseconds?: boolean
  /** That a file with holes has some in the other tree too. */
  readonly holes?: boolean
  /** Members (`./a/b`, one character per byte) that are not looked at, with what is below them. */
  readonly without?: readonly string[]
}

type Facts = Readonly<Record<string, string>>

/**
 * How two trees differ, a line for each fact; empty when they are the same in names, types, modes, owners,
 * sizes, content, modification times, link targets, device numbers, hard links, holes and extended
 * attributes.
 */
export async function compareTrees(
  expected: string,
  found: string,
  compared: Compared = {}
): Promise<string[]> {
  const [a, b] = await Promise.all([factsOf(expected, compared), factsOf(found, compared)])
  const lines: string[] = []
  for (const [path, facts] of a) {
    const others = b.get(path)
    if (others === undefined) lines.push(`${path}: missing`)
    else
      for (const key of new Set([...Object.keys(facts), ...Object.keys(others)]))
        if (facts[key] !== others[key]) lines.push(`${path}: ${key} is ${others[key]}, was ${facts[key]}`)
  }
  for (const path of b.keys()) if (!a.has(path)) lines.push(`${path}: was not there`)
  return lines
}

async function factsOf(tree: string, compared: Compared): Promise<Map<string, Facts>> {
  const members = new Map<string, { stat: BigIntStats; file: Buffer }>()
  const visit = (path: string) => {
    if (compared.without?.includes(path)) return
    const file = Buffer.concat([Buffer.from(`${tree}/`), Buffer.from(path, 'latin1')])
    const stat = lstatSync(file, { bigint: true })
    members.set(path, { stat, file })
    if (stat.isDirectory()) for (const name of readdirSync(file, 'latin1')) visit(`${path}/${name}`)
  }
  visit('.')
  const names = new Map<bigint, string[]>()
  for (const [path, { stat }] of members) names.set(stat.ino, [...(names.get(stat.ino) ?? []), path])
  const attributes = compared.attributes === false ? undefined : await attributesOf(tree)
  return new Map(
    [...members].map(([path, { stat, file }]) => [
      path,
      {
        ...factsOfOne(stat, file, compared),
        links: stat.isDirectory() ? '' : (names.get(stat.ino) ?? []).sort().join(' '),
        attributes: attributes?.get(path) ?? ''
      }
    ])
  )
}

function factsOfOne(stat: BigIntStats, file: Buffer, compared: Compared): Facts {
  return {
    mode: stat.mode.toString(8),
    owner: `${stat.uid}:${stat.gid}`,
    time: `${compared.nanoseconds === false ? stat.mtimeNs / 1_000_000n : stat.mtimeNs}`,
    device: stat.isBlockDevice() || stat.isCharacterDevice() ? stat.rdev.toString(16) : '',
    target: stat.isSymbolicLink() ? readlinkSync(file, 'latin1') : '',
    size: stat.isFile() ? `${stat.size}` : '',
    content: stat.isFile() ? contentOf(file) : '',
    holes: stat.isFile() && compared.holes !== false ? `${stat.blocks * 512n + 4096n <= stat.size}` : ''
  }
}

const chunk = Buffer.allocUnsafe(1 << 20)

function contentOf(file: Buffer): string {
  const hash = createHash('sha256')
  const fd = openSync(file, 'r')
  for (let read = readSync(fd, chunk); read > 0; read = readSync(fd, chunk))
    hash.update(chunk.subarray(0, read))
  closeSync(fd)
  return hash.digest('hex')
}

/** Path → all extended attributes in hexadecimal, in the order of their names. */
async function attributesOf(tree: string): Promise<Map<string, string>> {
  const args = ['--recursive', '--physical', '--no-dereference', '--match=-', '--dump', '--encoding=hex', '.']
  // Names are bytes.
  const options = { cwd: tree, env: programEnv(), encoding: 'latin1', maxBuffer: 256 << 20 } as const
  const { stdout } = await run('getfattr', args, options)
  return new Map(
    stdout.split('\n\n').flatMap(block => {
      const [, name, values] = /^# file: ([^\n]*)\n(.*)$/s.exec(block) ?? []
      if (name === undefined || values === undefined) return []
      const path = name === '.' ? '.' : `./${unescaped(name)}`
      return [[path, values.trim().split('\n').sort().join(' ')] as const]
    })
  )
}

/** getfattr writes what would end or confuse the line as three octal digits. */
const unescaped = (name: string) =>
  name.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)))
