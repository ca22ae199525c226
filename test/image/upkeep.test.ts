import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { PackReconciler } from '../../lib/image/pack-reconciler.js'
import { notesIn } from '../support/notes.js'
import { Bench } from './bench.js'

const announce = 'http://127.0.0.1:9/announce'

async function beginning(t: Test, ...overrides: string[]) {
  const bench = await Bench.open(t, ...overrides)
  /** Reports of torrents, beside the one at the begin of each look. */
  let told = 0
  const upkeep = new PackReconciler(bench.context, {
    installing: { packs: () => new Set() },
    torrents: () => told++,
    laterMs: 20
  })
  const run = async () => {
    await upkeep.run()
    told--
  }
  t.teardown(() => upkeep.close())
  /** A file that is named like the pack of an image. */
  const file = (content: string, sum = createHash('sha256').update(content).digest('hex')) => {
    const name = `far-${sum.slice(0, 12)}.tar.zst`
    writeFileSync(bench.path('files', name), content)
    return { name, sum }
  }
  const doc = (name: string) => bench.context.model.view.get('pack', name)
  return { bench, run, file, doc, told: () => told }
}

t.test('an imported image: its pack is known when name and checksum agree', async t => {
  const { bench, run, file, doc } = await beginning(t)
  const { name, sum } = file('packed elsewhere')
  const wrong = file('cut off', 'a'.repeat(64))
  const unnamed = file('nobody names it')
  const kernelfile = name.replace('.tar.zst', '-vmlinuz-6')
  await bench.put(tx => {
    tx.put('osimage', 'renamed', { name: 'renamed', imagefile: name, kernelfile })
    tx.put('osimage', 'broken', { name: 'broken', imagefile: wrong.name })
    tx.put('osimage', 'plain', { name: 'plain', imagefile: 'mine.tar.gz' })
    tx.put('osimage', 'away', { name: 'away', imagefile: `far-${'b'.repeat(12)}.tar.zst` })
  })
  await run()
  t.match(doc(name), { osimage: 'far', sha256: sum, bytes: 16, kernelfile, kernel: 'vmlinuz-6' })
  t.strictSame([...bench.context.model.view.names('pack')], [name], 'and nothing else is taken for a pack')
  t.equal(doc(unnamed.name), undefined)
  // What is broken is not read again and again, until it is another file.
  writeFileSync(bench.path('files', wrong.name), 'the whole')
  await run()
  t.equal(doc(wrong.name), undefined)
  t.same(bench.log, [])
  // Being copied, it is whole only later, and nobody says so.
  const late = file('comes late')
  writeFileSync(bench.path('files', late.name), 'comes')
  await bench.put(tx => tx.put('osimage', 'late', { name: 'late', imagefile: late.name }))
  await run()
  t.equal(doc(late.name), undefined)
  file('comes late')
  while (doc(late.name) === undefined) await sleep(5)
})

t.test('torrents follow the tracker of the ini', async t => {
  const { bench, run, file, doc, told } = await beginning(t, `torrent.tracker=${announce}`)
  const { name } = file('packed')
  await bench.put(tx => tx.put('osimage', 'far', { name: 'far', imagefile: name }))
  await run()
  t.ok(doc(name))
  const torrent = bench.path('files', `${name}.torrent`)
  const text = () => readFileSync(torrent, 'latin1')
  await run()
  t.match(text(), announce)
  t.equal(told(), 1)
  t.strictSame(notesIn(bench.path('state')), [], 'no note is left')
  writeFileSync(torrent, text().replace(announce, 'http://127.0.0.1:8/announce'))
  await run()
  t.match(text(), announce, 'another tracker')
  rmSync(bench.path('files', name))
  rmSync(torrent)
  await run()
  await run()
  t.equal(bench.log.length, 1, 'a pack that is missing is told once')
  t.strictSame(readdirSync(bench.path('files')), [])
  t.equal(told(), 2)
})

// rules 11.19
t.test('a pack that is fetched from another controller is no fault until it is there', async t => {
  const { bench, run, file } = await beginning(t, `torrent.tracker=${announce}`, 'store.medium=etcd')
  const { name, sum } = file('packed')
  const doc = { name, osimage: 'far', sha256: sum, bytes: 6, time: 1, packer: 'system' as const }
  rmSync(bench.path('files', name))
  await bench.put(tx => tx.put('pack', name, doc))
  await run()
  t.same(bench.log, [])
  file('packed')
  await run()
  t.strictSame(readdirSync(bench.path('files')).sort(), [name, `${name}.torrent`])
})
