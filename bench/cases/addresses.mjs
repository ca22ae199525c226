// The cost of these must not depend on size: the next free address of a network.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

const FIRST = 10 * 2 ** 24 + 1
const TAKEN = 100_000
const PER_NODE = 10
const text = address => [24, 16, 8, 0].map(bits => (address >>> bits) & 255).join('.')

/** A /8 of which 100,000 addresses are taken by 10,000 nodes, and an empty /28. */
function writeAddresses() {
  const put = (type, doc) => {
    mkdirSync(join(temporary, 'state', type), { recursive: true })
    writeFileSync(join(temporary, 'state', type, `${doc.name}.json`), JSON.stringify(doc))
  }
  put('network', { name: 'wide', network: '10.0.0.0/8' })
  put('network', { name: 'narrow', network: '192.168.0.0/28' })
  for (let i = 0; i < TAKEN / PER_NODE; i++) {
    const interfaces = Array.from({ length: PER_NODE }, (_, nic) => ({
      interface: `eth${nic}`,
      network: 'wide',
      ipaddress: text(FIRST + i * PER_NODE + nic)
    }))
    put('node', { name: `node${i}`, interfaces })
  }
}

const address = {
  name: 'address',
  title: 'next free address of a /8 with 100,000 taken',
  async run({ rounds, ms }) {
    writeAddresses()
    const daemon = await startDaemon(temporary)
    const client = start('load.mjs')
    const of = async name => {
      const requests = [await daemon.raw('GET', `/config/network/${name}/_nextfreeip`)]
      return async () =>
        (await loaded(client, daemon, { requests, sources: Array(16).fill('127.0.0.1'), ms })).perSecond
    }
    const work = [await of('wide'), await of('narrow')]
    await inTurn(1, work)
    const [wide, narrow] = await inTurn(rounds, work)
    return [figure('', '/s', wide, { beside: { what: 'an empty /28', rounds: narrow } })]
  }
}

export default [address]
