// The next free address of 10.0.0.0/8 with 100,000 addresses taken, next to that of a /28: the look-up alone, and asked
// for over http, and nodes created there. In turn, in one run, medians.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatAddress } from '../dist/model/address.js'
import { ClusterIndex } from '../dist/model/index.js'
import { nextFree } from '../dist/model/networks.js'
import { machine, median, quantile, row, startDaemon, temporary } from './daemon.mjs'

const TAKEN = 100_000
const ROUNDS = 31
const LOOKUPS = 20_000
const REQUESTS = 100
const FIRST = 10 * 2 ** 24 + 1

const networks = {
  wide: { name: 'wide', network: '10.0.0.0/8', gateway: '10.255.255.254' },
  narrow: { name: 'narrow', network: '192.168.0.0/28', gateway: '192.168.0.14' }
}
const cluster = { controller: { name: 'controller', address: '127.0.0.1' } }
const nameOf = i => `node${String(i + 1).padStart(6, '0')}`
const node = (i, network, address) => ({
  name: nameOf(i),
  interfaces: [{ interface: 'BOOTIF', network, ipaddress: formatAddress(address) }]
})
/** The first 100,000 addresses of the wide network are taken, and five of the narrow one. */
function* nodes(count) {
  for (let i = 0; i < count; i++) yield node(i, 'wide', FIRST + i)
  for (let i = 0; i < 5; i++) yield node(count + i, 'narrow', 192 * 2 ** 24 + 168 * 2 ** 16 + 1 + i)
}

function lookups() {
  const index = new ClusterIndex()
  for (const network of Object.values(networks)) index.update('network', network.name, undefined, network)
  for (const doc of nodes(TAKEN)) index.update('node', doc.name, undefined, doc)
  const view = { index, get: (type, name) => (type === 'network' ? networks[name] : undefined) }
  const times = { wide: [], narrow: [] }
  for (let round = 0; round < ROUNDS; round++)
    for (const name of Object.keys(times)) {
      const from = performance.now()
      for (let i = 0; i < LOOKUPS; i++) nextFree(view, name, cluster)
      times[name].push(((performance.now() - from) / LOOKUPS) * 1e6)
    }
  return { times, found: formatAddress(nextFree(view, 'wide', cluster)) }
}

/** A daemon with so many nodes in the wide network. */
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
const { times, found } = lookups()
row(`look-up, ${ROUNDS} rounds of ${LOOKUPS.toLocaleString('en')}`, 'ns each')
for (const [name, { network }] of Object.entries(networks))
  row(
    `${network}${name === 'wide' ? `, ${TAKEN.toLocaleString('en')} taken, ${found} is next` : ''}`,
    median(times[name]).toFixed(0)
  )
row('', `× ${(median(times.wide) / median(times.narrow)).toFixed(2)}`)

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
      row(`${network}, daemon with ${count.toLocaleString('en')} nodes`, ...shown)
    }
}
process.exit()
