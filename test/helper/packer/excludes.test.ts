import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import t from 'tap'
import { walk } from '../../../lib/helper/packer/archive.js'
import { literalPattern, matcher, tarOptions, tarPattern } from '../../../lib/helper/packer/contents.js'
import { NAMES, NAMES_NOT_UTF8, requireRootAndPrograms, workDirectory } from '../../image/rich-tree.js'

requireRootAndPrograms()

const FILES = [
  'var/cache/apt/archives/x.deb',
  'var/cache/.hidden',
  'var/log/syslog',
  'var/log/syslog.1',
  'root/var/cache/inner',
  'a[bc]d/x',
  'abd/x',
  'back\\slash',
  'k\u00c3\u00a4se',
  'kase',
  '{a,b}',
  '+(a)',
  'end\\',
  ...NAMES,
  ...NAMES_NOT_UTF8
]

const tree = workDirectory(t)
for (const name of FILES) {
  mkdirSync(Buffer.from(dirname(`${tree}/${name}`), 'latin1'), { recursive: true })
  writeFileSync(Buffer.from(`${tree}/${name}`, 'latin1'), '')
}

/** The members that the walk of the builtin packer leaves. */
const walked = (patterns: readonly string[]) =>
  [...walk({ tree, leaveOut: matcher(patterns), mounts: new Set() })].map(({ path }) => path)

/** The members that GNU tar leaves. */
function tarred(patterns: readonly string[]): string[] {
  const env = { PATH: process.env.PATH, LC_ALL: 'C' }
  const words = [
    '--create',
    '--format=posix',
    '--sort=name',
    ...tarOptions(patterns),
    '--file=-',
    `--directory=${tree}`,
    '.'
  ]
  const input = execFileSync('tar', words, { env })
  const list = ['--list', '--file=-', '--quoting-style=escape']
  const lines = execFileSync('tar', list, { input, env, encoding: 'latin1' }).trimEnd().split('\n')
  return lines.map(line => line.replace(/\\([0-7]{3}|.)/g, unescaped).replace(/\/$/, ''))
}

const LETTERS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }
const unescaped = (_: string, code: string) =>
  code.length === 3 ? String.fromCharCode(Number.parseInt(code, 8)) : (LETTERS[code] ?? code)

const all = walked([])

t.test('patterns start at the image and leave out what they match, with all below', async t => {
  t.equal(
    all.length,
    new Set(
      FILES.flatMap(name => [
        name,
        ...name
          .split('/')
          .slice(0, -1)
          .map((_, i, parts) => parts.slice(0, i + 1).join('/'))
      ])
    ).size + 1
  )
  for (const [exclude, gone] of [
    [
      '/var/cache/*',
      ['var/cache/.hidden', 'var/cache/apt', 'var/cache/apt/archives', 'var/cache/apt/archives/x.deb']
    ],
    ['/var/log', ['var/log', 'var/log/syslog', 'var/log/syslog.1']],
    ['var//log/', ['var/log', 'var/log/syslog', 'var/log/syslog.1']],
    ['/var/log/syslog', ['var/log/syslog']],
    ['/var/*/syslog*', ['var/log/syslog', 'var/log/syslog.1']],
    ['/var*syslog', []],
    ['/cache', []],
    ['syslog', []],
    ['/nowhere/*', []],
    ['/a[bc]d', ['a[bc]d', 'a[bc]d/x']],
    ['/a?d', ['abd', 'abd/x']],
    ['/k??se', ['k\u00c3\u00a4se']],
    ['/k\u00e4se', ['k\u00c3\u00a4se']],
    ['/\\*', ['*']],
    ['/back\\\\slash', ['back\\slash']],
    ['/end\\', ['end\\']],
    ['/{a,b}', ['{a,b}']],
    ['/+(a)', ['+(a)']],
    ['/new\nline', ['new\nline']],
    ['/-rf', ['-rf']],
    ['/--checkpoint-action=exec=touch pwned', ['--checkpoint-action=exec=touch pwned']],
    ['/$(touch pwned)', ['$(touch pwned)']],
    ['/; touch pwned', ['; touch pwned']],
    ['/../../*', []],
    ['/*', all.slice(1).map(path => path.slice(2))]
  ] as const) {
    const left = new Set(walked([tarPattern(exclude)]))
    t.strictSame(
      all.filter(path => !left.has(path)),
      gone.map(name => `./${name}`).sort()
    )
  }
})

// rules 9.2
t.test('both packers leave out the same', async t => {
  // Every name as it is, and with characters of it replaced by wildcards, in a pseudo-random order that
  // stays.
  let seed = 7
  const next = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff
    return (seed >> 8) % below
  }
  const texts = FILES.filter(name => !NAMES_NOT_UTF8.includes(name)).map(name =>
    Buffer.from(name, 'latin1').toString('utf8')
  )
  const wild = texts.flatMap(name =>
    Array.from({ length: 3 }, () => {
      const at = next(name.length)
      return `${name.slice(0, at)}${['*', '?', '\\', '[', '[!a]', '**', ']', '/', '\\*'][next(9)]}${name.slice(at + next(3))}`
    })
  )
  for (const exclude of [...texts, ...wild]) {
    if (/^[/.]*$/.test(exclude)) continue
    const patterns = [tarPattern(exclude)]
    t.strictSame(tarred(patterns), walked(patterns))
  }
  const literal = all.slice(1).filter(path => !NAMES_NOT_UTF8.some(name => path.includes(name)))
  for (const path of literal) {
    const left = walked([literalPattern(Buffer.from(path, 'latin1').toString('utf8'))])
    t.strictSame(
      all.filter(other => !left.includes(other)),
      all.filter(other => other === path || other.startsWith(`${path}/`))
    )
  }
})

t.test('one that names nothing is refused', async t => {
  for (const exclude of ['', '/', '///', '.', './', '/./.'])
    t.throws(
      () => tarPattern(exclude),
      new Error(`exclude ${JSON.stringify(exclude)} names no path in an image`)
    )
})
