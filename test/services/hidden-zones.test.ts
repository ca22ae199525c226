import { createSocket } from 'node:dgram'
import { Resolver } from 'node:dns/promises'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { checkAll } from '../../lib/cli/checks.js'
import { loadConfig } from '../../lib/config/load.js'
import { capture } from '../../lib/services/capture.js'
import { foreignNameWarnings, ownedZones } from '../../lib/services/dns/data.js'
import { Controller } from '../support/controller.js'
import { MemoryCluster, settings } from '../support/memory-cluster.js'
import { scratch } from '../support/scratch.js'

/** The labels of a name as DNS has them. */
const wire = (name: string) =>
  Buffer.concat([
    ...name.split('.').map(part => Buffer.from([part.length, ...Buffer.from(part)])),
    Buffer.alloc(1)
  ])

/**
 * A name server of the site: `example.org` is a zone of it, `sub.example.org` a name without records, and
 * nothing else is.
 */
async function site(): Promise<{ address: string; asked: string[]; close: () => void }> {
  const socket = createSocket('udp4')
  const asked: string[] = []
  socket.on('message', (message, from) => {
    const end = message.indexOf(0, 12) + 5
    const name = message.toString('latin1', 13, end - 5).replace(/[\x01-\x1f]/g, '.')
    asked.push(name)
    const soa = Buffer.concat([wire('ns1.example.org'), wire('root.example.org'), Buffer.alloc(20)])
    const length = Buffer.from([soa.length >> 8, soa.length & 255])
    const answer = Buffer.concat([Buffer.from([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 9]), length, soa])
    const isZone = name === 'example.org'
    const code = isZone || name === 'sub.example.org' ? 0 : 3
    const head = Buffer.from([
      message[0] ?? 0,
      message[1] ?? 0,
      0x85,
      code,
      0,
      1,
      0,
      isZone ? 1 : 0,
      0,
      0,
      0,
      0
    ])
    socket.send(
      Buffer.concat([head, message.subarray(12, end), ...(isZone ? [answer] : [])]),
      from.port,
      from.address
    )
  })
  await new Promise<void>(resolve => socket.bind(0, '127.0.0.1', resolve))
  return { address: `127.0.0.1:${socket.address().port}`, asked, close: () => socket.close() }
}

// rules 10.14
t.test('a zone in which others have names is told, one that is ours or nobody’s is not', async t => {
  const { address, asked, close } = await site()
  const zones = new Map([
    ['example.org', 'controller.example.org.'],
    ['sub.example.org', 'controller.sub.example.org.'],
    ['cluster', 'controller.cluster.'],
    ['141.10.in-addr.arpa', 'controller.cluster.']
  ])
  const told = await foreignNameWarnings(zones, [address])
  t.match(told, [
    /^DNS zone example\.org: others have names there today \(ns1\.example\.org\), .*"dns": "hosts"/,
    /^DNS zone sub\.example\.org: others have names there today \(a zone around it\)/
  ])
  t.equal(told.length, 2)
  t.same(asked.sort(), [...zones.keys()].sort())
  t.same(
    await foreignNameWarnings(new Map([['example.org', 'ns1.example.org.']]), [address]),
    [],
    'it is ours'
  )
  const many = new Map(Array.from({ length: 500 }, (_, i) => [`z${i}.example.org`, 'x.']))
  await foreignNameWarnings(many, [address])
  t.ok(asked.length < 50, 'a few are asked for')
  close()
  t.same(await foreignNameWarnings(zones, ['127.0.0.1:9']), [], 'where nobody answers, nothing is told')
})

// rules 10.14
t.test('empty zones of a resolver are not told, nor those of svcd on another controller', async t => {
  const { resolveSoa } = Resolver.prototype
  t.teardown(() => Object.assign(Resolver.prototype, { resolveSoa }))
  const sources: Record<string, string> = {
    ...{ '10.in-addr.arpa': '10.IN-ADDR.ARPA', '168.192.in-addr.arpa': 'localhost' },
    ...{ '16.172.in-addr.arpa': '16.172.in-addr.arpa', '20.10.in-addr.arpa': 'ns1.example.org' },
    ...{ cluster: 'ctl1.cluster', '141.10.in-addr.arpa': 'ctl2.cluster' }
  }
  Object.assign(Resolver.prototype, {
    resolveSoa: async (zone: string) => ({ nsname: sources[zone] ?? '' })
  })
  const told = await foreignNameWarnings(
    new Map(Object.keys(sources).map(zone => [zone, 'ctl2.cluster. ctl1.cluster.']))
  )
  t.match(told, [/^DNS zone 20\.10\.in-addr\.arpa: /])
  t.equal(told.length, 1)
  const { view } = new MemoryCluster({ 'network/cluster': { network: '10.141.0.0/16' } }).model
  const cluster = {
    ...settings,
    controller: { name: 'ctl2', address: '10.141.255.253' },
    otherControllers: [{ name: 'ctl1', address: '10.141.255.254' }]
  }
  const zones = runSync(ownedZones(capture(view, cluster)))
  t.same([...zones.keys()], ['cluster', '141.10.in-addr.arpa'])
  t.same(await foreignNameWarnings(zones), [], 'the name of each controller is ours')
})

// rules 10.14, 12.7
t.test('a dry run warns of a zone that is new', async t => {
  const directory = scratch(t)
  mkdirSync(join(directory, 'zones'))
  const asked: string[] = []
  const { resolveSoa } = Resolver.prototype
  t.teardown(() => Object.assign(Resolver.prototype, { resolveSoa }))
  Object.assign(Resolver.prototype, {
    resolveSoa: async (zone: string) => {
      asked.push(zone)
      if (zone !== 'example.org') throw Object.assign(new Error('no'), { code: 'ENOTFOUND' })
      return { nsname: 'ns1.example.org' }
    }
  })
  const c = await Controller.start(
    t,
    ...['dns.server=bind', `dns.config=${directory}/named.conf`, `dns.directory=${directory}/zones`],
    ...['dns.control=true', 'dns.check=true']
  )
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute' })
  const warning = async (path: string, body: object) => {
    asked.length = 0
    const { status, headers } = await c.post(`${path}?dryrun=yes`, body)
    t.equal(status, 200)
    return headers['x-svcd-warning']
  }
  t.match(
    await warning('/config/group/compute', { domain: 'example.org' }),
    /^DNS zone example\.org: others have names/
  )
  t.same(asked, ['example.org'], 'what is a zone already is not asked for')
  t.match(
    await warning('/config/network/example.org', { network: '10.7.0.0/24' }),
    /^DNS zone example\.org: /
  )
  t.equal(await warning('/config/network/example.org', { network: '10.7.0.0/24', dns: 'hosts' }), undefined)
  t.equal(await warning('/config/group/compute', { comment: 'x' }), undefined)
  t.same(asked, [])
  const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
  const checked = async () => (await checkAll(loadConfig(ini, c.overrides))).warnings.join('\n')
  t.notMatch(await checked(), 'DNS zone')
  await c.post('/config/group/compute', { domain: 'example.org' })
  await c.daemon.close(1000)
  t.match(
    await checked(),
    /^DNS zone example\.org: others have names there today/m,
    'svcd check tells it too'
  )
})
