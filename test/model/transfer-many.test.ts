import t from 'tap'
import type { JsonObject } from '../../lib/base/json.js'
import { importDocument } from '../../lib/model/transfer.js'
import { admin, MemoryCluster, type Objects } from '../support/memory-cluster.js'

const many = <V>(count: number, entry: (i: number) => readonly [key: string, value: V]) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => entry(i)))

const tagsOfOne = (count: number) => ({
  osimage: { i: {} },
  osimagetag: many(count, i => [`t${i}`, { name: `t${i}`, osimage: 'i', kernelfile: 'k', imagefile: 'f' }])
})
const tagOfAll = (count: number) => ({
  osimage: many(count, i => [`i${i}`, {}]),
  osimagetag: many(count, i => [i === 0 ? 'v' : `i${i}:v`, { name: 'v', osimage: `i${i}` }])
})
const interfaces = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ interface: `eth${i}`, network: 'n', ...more }))

/** What is there, and the documents that are imported one after the other, for so many entries. */
type Case = [is: string, before: Objects, documents: (count: number) => JsonObject[]]

const network = { 'network/n': { network: '10.0.0.0/8' } }
const cases: Case[] = [
  ['tags of one image, which goes then', {}, n => [tagsOfOne(n), { osimage: {} }]],
  ['the tags of one name of many images, which go then', {}, n => [tagOfAll(n), { osimage: {} }]],
  [
    'interfaces with one MAC, which is refused',
    network,
    n => [{ node: { n: { interfaces: interfaces(n, { macaddress: '52:54:00:00:00:01' }) } } }]
  ]
]

/** What the imports cost at best, in microseconds of the processor: other programs do not count. */
async function cost(before: Objects, documents: readonly JsonObject[]): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let run = 0; run < 3; run++) {
    const { model } = new MemoryCluster(before)
    const start = process.cpuUsage()
    for (const document of documents)
      await Promise.resolve()
        .then(() => importDocument(model, document, admin))
        .catch((error: Error) => t.match(error.message, /import refused/))
    const { user, system } = process.cpuUsage(start)
    least = Math.min(least, user + system)
  }
  return least
}

for (const [is, before, documents] of cases)
  t.test(`the cost of an import grows with its size, not with its square: ${is}`, async t => {
    const [some, times] = [1_500, 8]
    const [few, many] = [documents(some), documents(times * some)]
    await cost(before, few)
    const ratio = (await cost(before, many)) / (await cost(before, few))
    t.ok(ratio < times ** 2 / 2, `${times} times as much costs ${ratio.toFixed(1)} times as much`)
  })
