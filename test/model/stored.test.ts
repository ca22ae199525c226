import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { createIndex, kinds } from '../../lib/model/types.js'
import { Store } from '../store/file-store.js'

const pack = {
  name: 'compute-0123456789ab.tar.zst',
  osimage: 'compute',
  sha256: '0123456789abcdef'.repeat(4),
  bytes: 7,
  time: 1_000,
  packer: 'system',
  kernelfile: 'compute-0123456789ab-vmlinuz-6',
  kernel: 'vmlinuz-6',
  omitted: ['3 devices']
}
const root = {
  ...{ format: 'erofs', file: 'compute-0123456789ab-01234567.erofs', sha256: pack.sha256, bytes: 8192 },
  ...{ roothash: pack.sha256, hashoffset: 4096 }
}
const tree = { name: 'compute', at: 1_000 }

/** What `svcd check` says of a state that holds these files. */
async function problems(t: Test, files: Record<string, object>): Promise<string[]> {
  const directory = t.testdir()
  for (const [path, doc] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, path)), { recursive: true })
    writeFileSync(join(directory, path), `${JSON.stringify(doc, null, 2)}\n`)
  }
  const found = await Store.inspect({ directory, kinds, createIndex })
  return found.map(({ line, message }) => `${line}: ${message}`)
}

t.test('stored packs and image directories are read back as they were written', async t => {
  t.same(await problems(t, { [`pack/${pack.name}.json`]: pack, 'tree/compute.json': tree }), [])
  for (const [type, one] of [
    ['pack', pack],
    ['pack', { ...pack, roots: [root, { ...root, file: 'compute-0123456789ab-89abcdef.erofs' }] }],
    ['tree', tree]
  ] as const) {
    const doc = one as never
    const text = kinds[type].encode(doc)
    t.strictSame(kinds[type].decode((doc as { name: string }).name, JSON.parse(text)), doc)
  }
})

// rules 11.2
t.test('what a hand made of them is told with its line and field', async t => {
  for (const [change, says] of [
    [{ sha256: 'abc' }, /^4: .*"sha256" must be 64 hexadecimal digits/],
    [{ bytes: -1 }, /^5: .*"bytes"/],
    [{ packer: 'zip' }, /^7: .*"packer" must be one of system, builtin/],
    [{ kernel: '../vmlinuz' }, /^9: .*"kernel" must be a file name/],
    [{ omitted: 'all' }, /^10: .*"omitted" must be an array of strings/],
    [
      { roots: [{ ...root, sha256: 'zz' }] },
      /^17: .*: root compute-\S+\.erofs: field "sha256" must be 64 hex/
    ],
    [{ roots: Array(9).fill(root) }, /^\d+: .*"roots" must be a list of objects with format/],
    [{ more: 1 }, /no field "more"/]
  ] as const) {
    const [found = '', ...others] = await problems(t, { [`pack/${pack.name}.json`]: { ...pack, ...change } })
    t.match(found, says)
    t.same(others, [])
  }
  t.match((await problems(t, { 'tree/compute.json': { name: 'compute', at: 'today' } }))[0], /^3: .*"at"/)
  t.match((await problems(t, { 'tree/compute.json': { name: 'compute', osimage: 'a b' } }))[0], /"osimage"/)
})

const entry = { interface: 'a' }

const byHand: [is: string, path: string, doc: object, says: string][] = [
  ['a field that svcd derives', 'node/n', { macaddr: '52:54:00:00:00:01' }, '3: there is no field "macaddr"'],
  ['a state of the installer', 'node/n', { status: 'up' }, '3: there is no field "status"'],
  ['a key of answers', 'node/n', { _override: true }, '3: there is no field "_override"'],
  ['any key that begins with _', 'node/n', { _x: 1 }, '3: there is no field "_x"'],
  ['a field that requests may have', 'osimage/n', { torrent: 'x' }, '3: there is no field "torrent"'],
  ['a spelling of requests', 'osimage/n', { tarball: 'x' }, '3: there is no field "tarball"'],
  ['a spelling by the type', 'node/n', { bmcsetup: true }, '3: there is no field "bmcsetup"'],
  ['null', 'node/n', { comment: null }, '3: field "comment" is null; leave it out'],
  ['an empty text', 'node/n', { group: '' }, '3: field "group" is ""; leave it out'],
  ['an empty list', 'node/n', { interfaces: [] }, '3: field "interfaces" is []; leave it out'],
  ['an empty list of a group', 'group/n', { interfaces: [] }, '3: field "interfaces" is []; leave it out'],
  ['nothing removed', 'node/n', { removed: [] }, '3: field "removed" is []; leave it out'],
  [
    'an interface that is not its own',
    'node/n',
    { interfaces: [{ ...entry, own: false }] },
    '6: interface a: field "own" is false; leave it out'
  ],
  [
    'a key of answers in an interface',
    'node/n',
    { interfaces: [{ ...entry, _x: 1 }] },
    '6: interface a: there is no field "_x"'
  ],
  [
    'null in an interface',
    'node/n',
    { interfaces: [{ ...entry, network: null }] },
    '6: interface a: field "network" is null; leave it out'
  ],
  [
    'null as the value of a setting',
    'cluster/cluster',
    { settings: { debug: { value: null, ini: false } } },
    '5: field "value" is null; leave it out'
  ],
  [
    'an empty kernel of a tag',
    'osimagetag/i:t',
    { kernelfile: '', osimage: 'i', tag: 't', order: 1 },
    '3: field "kernelfile" is ""; leave it out'
  ]
]

for (const [is, path, fields, says] of byHand)
  t.test(`svcd never writes it, so a hand did, and is told (rules 11.2): ${is}`, async t => {
    const name = path.replace(/.*\//, '')
    const [found = '', ...others] = await problems(t, { [`${path}.json`]: { name, ...fields } })
    t.equal(found.replace(/: .*?: /, ': ').slice(0, says.length), says)
    t.same(others, [])
  })

t.test('a file without its name is told (rules 11.2)', async t =>
  t.same(await problems(t, { 'node/n.json': { comment: 'x' } }), ['1: node n: field "name" is missing'])
)

t.test('a file may hold a default that an object can set, and a mask as a password (rules 11.2)', async t => {
  t.same(kinds.node.decode('n', { name: 'n', service: false }), { name: 'n' })
  const masked = { name: 'b', password: '********' }
  t.same(kinds.bmcsetup.decode('b', masked), masked)
})

t.test('a pack keeps its files served; only images and tags name it', async t => {
  const index = createIndex()
  const image = { name: 'compute', imagefile: pack.name, kernelfile: 'other' }
  index.update('pack', pack.name, undefined, pack)
  t.ok(index.isImageFile('pack', pack.name))
  t.ok(index.isImageFile('boot', pack.kernelfile))
  t.notOk(index.isFileReferenced('pack', pack.name))
  index.update('osimage', 'compute', undefined, image)
  t.ok(index.isFileReferenced('pack', pack.name))
  index.update('pack', pack.name, pack, undefined)
  t.ok(index.isImageFile('pack', pack.name), 'an image may name a file that nothing is known of')
  t.notOk(index.isImageFile('boot', pack.kernelfile))
  index.update('osimage', 'compute', image, undefined)
  t.notOk(index.isImageFile('pack', pack.name))
})
