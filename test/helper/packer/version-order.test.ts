import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { dpkgOrder, rpmOrder } from '../../../lib/helper/packer/version-order.js'
import { output, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'

requirePrograms('rpm', 'dpkg')

/** A generator of its own, so that a failure comes again. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff
    return (state >> 8) % below
  }
}

const releases = ['el8_10', 'el9_4', 'fc40', 'amd64', 'generic', 'rt', 'default', '0kali1', 'x86_64', 'bpo']

/** Kernel versions as the world has them, and texts of the same letters. */
function versions(count: number, letters: string, seed: number): string[] {
  const random = numbers(seed)
  const number = () => String(random(random(2) === 0 ? 12 : 700)).padStart(random(9) === 0 ? 4 : 1, '0')
  const one = (of: readonly string[]) => of[random(of.length)] as string
  const usual = () =>
    [`${one(['4', '5', '6'])}.${number()}`, ...Array.from({ length: random(3) }, number)].join('.') +
    one(['-', '-', '~rc', '+', '']) +
    [number(), one([number(), one(releases)]), one(releases)].slice(random(3)).join(one(['.', '-', '.']))
  const wild = () => `1${Array.from({ length: random(10) }, () => letters[random(letters.length)]).join('')}`
  return Array.from({ length: count }, (_, i) => (i % 3 === 0 ? wild() : usual()))
}

/** Pairs that are near each other, as well as any two. */
function pairs(count: number, letters: string): [string, string][] {
  const random = numbers(7)
  const all = versions(count, letters, 3)
  return all.map((version, i) => {
    const at = random(version.length) + 1
    const near = [version.slice(0, at), `${version}${letters[random(letters.length)]}`, version]
    return [version, i % 2 === 0 ? (all[(i * 7 + 1) % count] as string) : (near[random(3)] as string)]
  })
}

const sign = (order: number) => Math.sign(order)

t.test('versions are ordered as rpm orders them', async t => {
  const script = join(scratch(t), 'pairs.lua')
  // A lone release or version is no kernel's: rpm does not say which of them is newer.
  const all = pairs(6000, '0199aZbz.._+~^-').filter(both => both.every(text => !/^-|-$|-.*-/.test(text)))
  // What a macro gives has a bound.
  const lines = all.map(([a, b]) => `said:write(rpm.vercmp("${a}", "${b}"), "\\n")`)
  writeFileSync(script, [`said = io.open("${script}.said", "w")`, ...lines, 'said:close()'].join('\n'))
  await output('rpm', ['--eval', `%{lua: dofile("${script}")}`])
  const said = readFileSync(`${script}.said`, 'utf8').trim().split('\n')
  t.equal(said.length, all.length)
  t.ok(all.length > 3000)
  t.strictSame(
    all.flatMap(([a, b], i) => (sign(rpmOrder(a, b)) === Number(said[i]) ? [] : [[a, b, said[i]]])),
    []
  )
})

t.test('versions are ordered as dpkg orders them', async t => {
  const script = join(scratch(t), 'pairs.sh')
  // Each takes two programs.
  const count = process.env.SVCD_LONG ? 1500 : 400
  const all = pairs(count, '0199aZbz..+~-').filter(both => both.every(text => /^[0-9].*[^-]$/.test(text)))
  t.ok(all.length > count / 2)
  const lines = all.map(
    ([a, b]) => `case $(c '${a}' '${b}') in lt) echo -1 ;; gt) echo 1 ;; *) echo 0 ;; esac`
  )
  const compare =
    'c() { if dpkg --compare-versions "$1" lt "$2"; then echo lt; elif dpkg --compare-versions "$1" gt "$2"; then echo gt; fi; }'
  writeFileSync(script, [compare, ...lines].join('\n'))
  const said = (await output('sh', [script])).trim().split('\n')
  t.strictSame(
    all.flatMap(([a, b], i) => (sign(dpkgOrder(a, b)) === Number(said[i]) ? [] : [[a, b, said[i]]])),
    []
  )
})

t.test('kernels that were taken for the wrong one', async t => {
  for (const [older, newer] of [
    ['4.18.0-553.el8_10.x86_64', '4.18.0-553.64.1.el8_10.x86_64'],
    ['3.10.0-1160.el7.x86_64', '3.10.0-1160.119.1.el7.x86_64'],
    ['6.6-2.el9', '6.6.1-1.el9'],
    ['5.14.0-70.13.1.el9_0', '5.14.0-427.el9_4']
  ] as const)
    t.ok(rpmOrder(older, newer) < 0 && rpmOrder(newer, older) > 0, `${older} ${newer}`)
  for (const [older, newer] of [
    ['6.1.0-9-amd64', '6.1.0-10-amd64'],
    ['6.12~rc7-amd64', '6.12-amd64'],
    ['6.8.0-45-generic', '6.11.0-8-generic']
  ] as const)
    t.ok(dpkgOrder(older, newer) < 0 && dpkgOrder(newer, older) > 0, `${older} ${newer}`)
})
