import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { createIndex, kinds } from '../../lib/model/types.js'
import { Store } from '../../lib/store/store.js'

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
  for (const type of ['pack', 'tree'] as const) {
    const doc = (type === 'pack' ? pack : tree) as never
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
    [{ more: 1 }, /no field "more"/]
  ] as const) {
    const [found = '', ...others] = await problems(t, { [`pack/${pack.name}.json`]: { ...pack, ...change } })
    t.match(found, says)
    t.same(others, [])
  }
  t.match((await problems(t, { 'tree/compute.json': { name: 'compute', at: 'today' } }))[0], /^3: .*"at"/)
  t.match((await problems(t, { 'tree/compute.json': { name: 'compute', osimage: 'a b' } }))[0], /"osimage"/)
})

t.test('a pack keeps its files served; only images and tags name it', async t => {
  const index = createIndex()
  const image = { name: 'compute', imagefile: pack.name, kernelfile: 'other' }
  index.update('pack', pack.name, undefined, pack)
  t.ok(index.isImageFile('pack', pack.name))
  t.ok(index.isImageFile('boot', pack.kernelfile))
  t.notOk(index.isNamed('pack', pack.name))
  index.update('osimage', 'compute', undefined, image)
  t.ok(index.isNamed('pack', pack.name))
  index.update('pack', pack.name, pack, undefined)
  t.ok(index.isImageFile('pack', pack.name), 'an image may name a file that nothing is known of')
  t.notOk(index.isImageFile('boot', pack.kernelfile))
  index.update('osimage', 'compute', image, undefined)
  t.notOk(index.isImageFile('pack', pack.name))
})
