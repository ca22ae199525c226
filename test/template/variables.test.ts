import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { type Variable, type Variables, variablesDocument } from '../../lib/base/variables.js'
import { fileVariables } from '../../lib/boot/node-files.js'
import { bootTemplates } from '../../lib/boot/template-variables.js'
import { daemonActor } from '../../lib/model/model.js'
import type { PackRoot } from '../../lib/model/types/pack-roots.js'
import { consoleTemplates } from '../../lib/services/consoles/variables.js'
import { dhcpTemplates } from '../../lib/services/dhcp/variables.js'
import { dnsTemplates } from '../../lib/services/dns/variables.js'
import { tftpTemplates } from '../../lib/services/tftp/variables.js'
import { FILTERS, METHODS, TESTS } from '../../lib/template/filters.js'
import { Templates } from '../../lib/template/templates.js'
import { Controller } from '../support/controller.js'
import { wholeLayout } from '../support/layout-script.js'
import { Reference } from './reference.js'
import { render } from './render.js'
import { CASES } from './shipped-cases.js'

const tables: Readonly<Record<string, Variables>> = {
  ...bootTemplates,
  '/config/file/{filename}': fileVariables,
  ...dhcpTemplates,
  ...dnsTemplates,
  ...tftpTemplates,
  ...consoleTemplates
}
const doc = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')

const directory = new URL('../../templates/', import.meta.url)

type Data = Readonly<Record<string, unknown>>

/**
 * What keeps a value from being of a variable's type; `seen` takes the paths of the variables that were
 * looked at.
 */
function* wrong(
  path: string,
  { type, shape }: Variable,
  value: unknown,
  seen: Set<string>
): Generator<string> {
  const listed = /^list of (.*)s$/.exec(type.replace(/^list of lists/, 'list of list'))?.[1]
  if (listed !== undefined) {
    if (!Array.isArray(value)) yield `${path} is no list`
    const item = {
      type: listed.replace(/^list of map$/, 'list of maps'),
      meaning: '',
      ...(shape && { shape })
    }
    for (const each of Array.isArray(value) ? value : []) yield* wrong(path, item, each, seen)
  } else if (shape) {
    if (type === 'map or false' && value === false) return
    if (typeof value !== 'object' || value === null) yield `${path} is no map`
    else yield* differences(`${path}.`, shape.variables, value as Data, seen)
  } else if (type === 'map of strings') {
    if (typeof value !== 'object' || value === null) yield `${path} is no map`
    for (const [name, each] of Object.entries(value ?? {}))
      if (typeof each !== 'string') yield `${path}.${name} is no string`
  } else if (type === 'integer' ? !Number.isSafeInteger(value) : typeof value !== type)
    yield `${path} is no ${type}: ${value}`
}

/** How the data that a template is given differ from its table. */
function* differences(path: string, table: Variables, data: Data, seen: Set<string>): Generator<string> {
  for (const name of Object.keys(data))
    if (!table[name]) yield `${path}${name} is passed, and not in the table`
  for (const [name, variable] of Object.entries(table)) {
    seen.add(`${path}${name}`)
    if (!Object.hasOwn(data, name)) yield `${path}${name} is in the table, and not passed`
    else yield* wrong(`${path}${name}`, variable, data[name], seen)
  }
}

/** The paths of all variables of a table, with those of the maps in it. */
function paths(path: string, table: Variables): string[] {
  return Object.entries(table).flatMap(([name, { shape }]) => [
    `${path}${name}`,
    ...(shape ? paths(`${path}${name}.`, shape.variables) : [])
  ])
}

/** Holds what templates are given against their tables; every variable has to be seen once at least. */
function agree(t: Tap, given: readonly { readonly template: string; readonly data: object }[]): void {
  const seen = new Set<string>()
  for (const { template, data } of given) {
    const table = tables[template]
    t.ok(table, `${template} has a table`)
    if (table) t.strictSame([...differences(`${template} `, table, data as Data, seen)], [], template)
  }
  const all = [...new Set(given.map(({ template }) => template))]
  t.strictSame(
    all.flatMap(template => paths(`${template} `, tables[template] ?? {})).filter(path => !seen.has(path)),
    [],
    'every variable was passed'
  )
}

type Tap = Pick<typeof t, 'ok' | 'strictSame'>

// rules 4.20
t.test('docs/templates.md is what the tables of today say', async t => {
  const stale = 'docs/templates.md is stale: type `make docs`'
  t.equal(doc('templates.md'), variablesDocument(doc('templates-intro.md'), tables), stale)
  for (const table of Object.values(tables))
    for (const [name, { type, meaning }] of Object.entries(table)) {
      t.match(doc('templates.md'), `| \`${name}\` | ${type}`)
      t.match(doc('templates.md'), `| ${meaning} |`)
    }
})

t.test('the templates of servers are given what their tables say', async t => {
  const given = CASES.filter(({ template }) => /^(dhcp|dns|tftp|consoles)\//.test(template))
  t.strictSame(
    [...new Set(given.map(({ template }) => template))].sort(),
    Object.keys({ ...dhcpTemplates, ...dnsTemplates, ...tftpTemplates, ...consoleTemplates }).sort()
  )
  agree(t, given)
})

t.test('the templates of nodes are given what their tables say', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/network/ipmi', { network: '10.148.0.0/16' })
  await c.post('/config/bmcsetup/compute', { username: 'operator', password: 'secret' })
  const { name: layout, ...fields } = wholeLayout
  t.equal((await c.post(`/config/disklayout/${layout}`, fields)).status, 201)
  await c.post('/config/group/compute', {
    disklayout: layout,
    setupbmc: true,
    bmcsetupname: 'compute',
    roles: 'one',
    interfaces: [{ interface: 'BMC', network: 'ipmi' }]
  })
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  await c.post('/config/node/bare', { interfaces: [] })
  await c.post('/config/secrets/node/node001', [
    { name: 'key', path: '/etc/key', content: Buffer.from('x').toString('base64') }
  ])

  for (const method of ['preseed', 'autoinstall'])
    await c.post(`/config/node/${method}`, { group: 'compute', provision_method: method })
  await c.post('/config/secrets/group/compute', [
    { name: 'key', path: '/etc/key', content: Buffer.from('x').toString('base64') }
  ])
  const root: PackRoot = {
    ...{ format: 'squashfs', file: 'compute-1.squashfs', sha256: 'a'.repeat(64), bytes: 8192 },
    ...{ roothash: 'c'.repeat(64), hashoffset: 4096 }
  }
  c.file(root.file)
  await c.daemon.model.change(daemonActor, tx => {
    const pack = { osimage: 'compute', sha256: 'b'.repeat(64), bytes: 1, time: 1, packer: 'system' as const }
    tx.put('pack', 'compute.tar.gz', { ...pack, name: 'compute.tar.gz', roots: [root] })
  })
  await c.post('/config/group/diskless', { osimage: 'compute', root_format: 'squashfs' })
  await c.post('/config/node/small', { group: 'diskless' })
  const given: { template: string; data: object }[] = []
  const { render } = Templates.prototype
  t.teardown(() => {
    Templates.prototype.render = render
  })
  Templates.prototype.render = function (this: Templates, template, data) {
    given.push({ template, data })
    return render.call(this, template, data)
  }
  for (const path of [
    ...['/boot', '/boot/short', '/boot/disk', '/boot/search/mac/52:54:00:00:00:99'],
    ...['boot', 'install', 'kickstart'].map(what => `/config/node/node001/_render/${what}`),
    '/config/node/bare/_render/boot',
    '/config/node/small/_render/install',
    ...['preseed', 'autoinstall'].map(node => `/config/node/${node}/_render/kickstart`),
    '/config/node/preseed/_render/install'
  ])
    t.equal((await c.get(path)).status, 200, path)
  for (const file of ['user-data', 'vendor-data'])
    t.equal((await c.get(`/boot/cloud-init/node001/${file}`, { source: '10.141.0.1' })).status, 200, file)
  t.strictSame(
    [...new Set(given.map(({ template }) => template))].sort(),
    // Those of GRUB are rendered for the TFTP tree: test/boot/grub.test.ts.
    Object.keys(bootTemplates)
      .filter(name => !/^boot\/(?:grub\/|arguments)/.test(name))
      .sort(),
    'every template was rendered'
  )
  // Installers are given the same variables, and never a root.
  const roots = given.flatMap(({ data }) => ((data as Data).root ? { root: (data as Data).root } : []))
  t.strictSame(roots, [{ root: { ...root, torrent: '' } }])
  const withRoot = given.filter(({ data }) => 'root' in data)
  agree(t, [
    ...given,
    ...withRoot.map(({ template, data }) => ({ template, data: { ...data, ...roots[0] } }))
  ])
})

t.test('shipped templates read the variables of their tables alone', async t => {
  const templates = new Templates({ directory: fileURLToPath(directory) })
  for (const { template, what, data } of CASES) {
    const table = tables[template] ?? {}
    // shipped.test.ts shows that these cases take every branch
    t.strictSame([...differences('', table, data as Data, new Set())], [], `${template}: ${what}`)
    const asked = new Set<string | symbol>()
    const watched = new Proxy(data as Data, {
      getOwnPropertyDescriptor(target, name) {
        asked.add(name)
        return Reflect.getOwnPropertyDescriptor(target, name)
      }
    })
    templates.render(template, watched)
    t.strictSame(
      [...asked].filter(name => !table[String(name)]),
      [],
      `${template}: ${what}`
    )
  }
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' })
  t.strictSame(
    files.filter(name => /\/templ_/.test(name) && !tables[name]),
    ['dhcp/templ_kea_subnet.cfg'],
    'all have a table but the one that is included'
  )
})

/**
 * The rows of the tables of the language: the first cell, and where there are both the example and what it
 * gives.
 */
const rows = doc('templates-intro.md')
  .split('\n')
  .filter(line => /^\| [`]/.test(line))
  .map(line => line.split(/(?<!\\) ?\| ?/).map(cell => cell.replaceAll('\\|', '|')))
  .map(([, construct = '', , example = '', gives = '']) => ({ construct, example, gives }))
const code = (cell: string) => /^`(.*)`$/.exec(cell)?.[1]

t.test('the examples of docs/templates.md give what it says, by svcd and by jinja2', async t => {
  const reference = await Reference.start()
  t.teardown(() => reference.stop())
  t.ok(rows.length > 50, `${rows.length} rows`)
  for (const { construct, example, gives } of rows) {
    const main = code(example)
    t.type(main, 'string', `an example of ${construct}`)
    const text = gives === '' ? '' : code(gives)
    t.strictSame(render({ main: main ?? '' }, 'main', {}), { text }, `${main}`)
    t.strictSame(await reference.render({ main: main ?? '' }, 'main', {}), { text }, `${main} by jinja2`)
  }
})

t.test('docs/templates.md has each filter, test and method, with its arguments, and no other', async t => {
  const named = (from: string, to: string): string[] => {
    const text = doc('templates-intro.md').split(`### ${from}`)[1]?.split(`### ${to}`)[0] ?? ''
    const cells = [...text.matchAll(/^\| (`.*?) \| /gm)].map(([, cell = '']) => cell)
    return cells.flatMap(cell => [...cell.matchAll(/`\.?(\w+)/g)].map(([, name = '']) => name)).sort()
  }
  const words = (operations: ReadonlyMap<string, unknown>) =>
    [...operations.keys()].filter(name => /^\w/.test(name)).sort()
  t.strictSame(named('Filters', 'Tests'), words(FILTERS))
  t.strictSame(named('Tests', 'Methods'), words(TESTS))
  t.strictSame(named('Methods', 'What is not'), words(METHODS))
  for (const [name, { params }] of FILTERS) {
    const row = rows.find(({ construct }) => construct.includes(`\`${name}`))
    // `d` is told by `default`; what stands as a filter in `map` is refused
    const told = name === 'd' ? [] : params.filter(param => param !== 'filter')
    for (const param of told) t.match(row?.construct, param.replace('default_', ''), name)
  }
})
