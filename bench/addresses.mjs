// The next free address of 10.0.0.0/8 with 100,000 addresses taken (by 10,000 nodes), next to that of a /28: the look-up
// alone, and asked for over http, and nodes created there. In turn, in one run, medians.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatAddress } from '../dist/model/address.js'
import { nextFree } from '../dist/model/networks.js'
import { createIndex } from '../dist/model/types.js'
import { machine, median, quantile, row, startDaemon, temporary } from './daemon.mjs'

const TAKEN = 100_000
const PER_NODE = 10
const ROUNDS = 31
const LOOKUPS = 20_000
const REQUESTS = 100
const FIRST = 10 * 2 ** 24 + 1

const networks = {
  wide: { name: 'wide', network: '10.0.0.0/8', gateway: '10.255.255.254' },
  narrow: { name: 'narrow', network: '192.168.0.0/28', gateway: '192.168.0.14' }
}
const cluster = { controller: { name: 'controller', address: '127.0.0.1' } }
const doc = (i, network, addresses) => ({
  name: `node${String(i + 1).padStart(6, '0')}`,
  interfaces: addresses.map((address, nic) => ({
    interface: nic === 0 ? 'BOOTIF' : `eth${nic}`,
    network,
    ipaddress: formatAddress(address)
  }))
})
/** Nodes that take the first `count` addresses of the wide network, and one that takes five of the narrow one. */
function* nodes(count) {
  const run = (first, length) => Array.from({ length }, (_, i) => first + i)
  for (let i = 0; i < count / PER_NODE; i++) yield doc(i, 'wide', run(FIRST + i * PER_NODE, PER_NODE))
  yield doc(count, 'narrow', run(192 * 2 ** 24 + 168 * 2 ** 16 + 1, 5))
}

function viewOf(count) {
  const index = createIndex()
  for (const network of Object.values(networks)) index.update('network', network.name, undefined, network)
  for (const doc of nodes(count)) index.update('node', doc.name, undefined, doc)
  return { index, get: (type, name) => (type === 'network' ? networks[name] : undefined) }
}

/** Nanoseconds of one look-up: [what, median]. */
function lookups() {
  const [few, many] = [10, TAKEN].map(viewOf)
  const cases = [
    ['192.168.0.0/28, 5 taken', few, 'narrow'],
    ['10.0.0.0/8, 10 taken', few, 'wide'],
    [`10.0.0.0/8, ${TAKEN.toLocaleString('en')} taken`, many, 'wide']
  ]
  const times = cases.map(() => [])
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, [, view, name]] of cases.entries()) {
      const from = performance.now()
      for (let k = 0; k < LOOKUPS; k++) nextFree(view, name, cluster)
      times[i].push(((performance.now() - from) / LOOKUPS) * 1e6)
    }
  return cases.map(([what], i) => [what, median(times[i])])
}

/** A daemon with so many addresses taken in the wide network. */
function daemonWith(count) {
  const directory = join(temporary, String(count))
  const put = (type, doc) =>
    writeFileSync(join(directory, 'state', type, `${doc.name}.json`), `${JSON.stringify(doc, null, 2)}\n`)
  for (const type of ['network', 'node']) mkdirSync(join(directory, 'state', type), { recursive: true })
  for (const network of Object.values(networks)) put('network', network)
  for (const doc of nodes(count)) put('node', doc)
  return startDaemon(directory)
}

const created = network => JSON.stringify({ interfaces: [{ interface: 'BOOTIF', network }] })

/** Milliseconds of one request of each kind, for each daemon and network, in turn. */
async function requests(daemons) {
  const times = {}
  const time = async (key, ask) => {
    const from = performance.now()
    await ask()
    times[key] ??= []
    times[key].push(performance.now() - from)
  }
  for (let i = 0; i < REQUESTS; i++)
    for (const [count, daemon] of daemons)
      for (const network of i % 2 ? ['wide', 'narrow'] : ['narrow', 'wide']) {
        const path = `/config/node/new${i % 10}`
        await time(`${count} ${network} next`, () =>
          daemon.ask('GET', `/config/network/${network}/_nextfreeip`)
        )
        await time(`${count} ${network} create`, () => daemon.ask('POST', path, created(network)))
        await daemon.ask('GET', `${path}/_delete`)
      }
  return times
}

console.log(`${machine()}; medians, in turn\n`)
const found = lookups()
row(`look-up, ${ROUNDS} rounds of ${LOOKUPS.toLocaleString('en')}`, 'ns each', 'to the /28')
for (const [what, time] of found) row(what, time.toFixed(0), `× ${(time / found[0][1]).toFixed(2)}`)

const daemons = []
for (const count of [10, TAKEN]) daemons.push([count, await daemonWith(count)])
const answered = await requests(daemons)
for (const [kind, what] of [
  ['next', 'GET …/_nextfreeip'],
  ['create', 'POST of a node, on disk when answered']
]) {
  console.log()
  row(`${what}, ${REQUESTS} each`, 'median ms', 'p90 ms')
  for (const [count] of daemons)
    for (const [name, { network }] of Object.entries(networks)) {
      const found = answered[`${count} ${name} ${kind}`]
      const shown = [median(found), quantile(found, 0.9)].map(value => value.toFixed(2))
      row(`${network}, ${count.toLocaleString('en')} taken in all`, ...shown)
    }
}
process.exit()
