import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import type { Model } from '../../lib/model/model.js'
import type { View } from '../../lib/model/stored.js'
import type { NodeDoc } from '../../lib/model/types/node.js'
import type { SwitchDoc } from '../../lib/model/types/switch.js'
import { PortDetection } from '../../lib/services/snmp/detection.js'
import { freePort } from '../support/free-port.js'
import { community, deadSwitch, type Learned, startSwitch } from './snmp-switch.js'

const mac = (n: number) => `52:54:00:05:00:${n.toString(16).padStart(2, '0')}`
/** Not 127.0.0.1 alone: each switch of a test has an address of its own, and all have the same port. */
const address = (n: number) => `127.0.5.${n}`
const on = (name: string, of: string, switchport: string | number, own?: string): NodeDoc => ({
  name,
  switch: of,
  switchport,
  ...(own === undefined ? {} : { interfaces: [{ interface: 'BOOTIF', macaddress: own }] })
})

/** Detection over these objects, with a clock that is moved by hand. */
function detection(t: Test, port: number, switches: SwitchDoc[], nodes: NodeDoc[]) {
  const all = { switch: switches, node: nodes }
  const view = {
    names: (type: 'switch' | 'node') => all[type].map(({ name }) => name),
    get: (type: 'switch' | 'node', name: string) => all[type].find(doc => doc.name === name),
    index: {
      referrers: ({ name }: { name: string }) =>
        all.node.filter(node => node.switch === name).map(node => ({ type: 'node', name: node.name }))
    }
  } as unknown as View
  const log: string[] = []
  let clock = 0
  const ports = new PortDetection({
    model: { view } as Model,
    log: createLog('info', line => log.push(line.slice(25).trim())),
    now: () => clock,
    port
  })
  t.teardown(() => ports.close())
  return {
    log,
    switches,
    close: () => ports.close(),
    pass: (ms: number) => {
      clock += ms
    },
    find: async (wanted: string) => (await ports.find(wanted))?.(view)?.node.name
  }
}

const sw = (n: number, fields: Partial<SwitchDoc> = {}): SwitchDoc => ({
  name: `switch0${n}`,
  ipaddress: address(n),
  read: community,
  ...fields
})

async function start(t: Test, tables: readonly (readonly Learned[])[], ports = 8) {
  const port = await freePort()
  const running = []
  for (const [i, learned] of tables.entries())
    running.push(await startSwitch(t, { address: address(i + 1), port }, learned, ports))
  return { port, running }
}

t.test('a port is meant by its name, its number or its ifIndex', async t => {
  const learned = [1, 2, 3, 5].map(n => ({ mac: mac(n), port: n }))
  const { port } = await start(t, [learned])
  const { find } = detection(
    t,
    port,
    [sw(1)],
    [
      on('number', 'switch01', 1),
      on('name', 'switch01', ' Ethernet1/2'),
      on('index', 'switch01', '1003'),
      // A number that is a port's own is no ifIndex, and a name is not cut off.
      on('elsewhere', 'switch01', 'Ethernet1/50')
    ]
  )
  t.equal(await find(mac(1)), 'number')
  t.equal(await find(mac(2)), 'name')
  t.equal(await find(mac(3)), 'index')
  t.equal(await find(mac(5)), undefined)
})

t.test("tables: by VLAN, without VLANs, and a vendor's own", async t => {
  const { port } = await start(t, [
    [
      { mac: mac(1), port: 1, vlan: 100 },
      { mac: mac(1), port: 1, vlan: 4000 },
      { mac: mac(2), port: 2 },
      { mac: mac(3), port: 3, own: true },
      // Learned, but the switch does not say where.
      { mac: mac(4), port: 0 }
    ]
  ])
  const nodes = [1, 2, 3].map(n => on(`node00${n}`, 'switch01', n))
  const standard = detection(t, port, [sw(1)], nodes)
  t.equal(await standard.find(mac(1)), 'node001', 'in two VLANs of one port')
  t.equal(await standard.find(mac(2)), 'node002')
  t.equal(await standard.find(mac(3)), undefined)
  t.equal(await standard.find(mac(4)), undefined)
  const own = detection(t, port, [sw(1, { oid: '.1.3.6.1.2.1.17.99.1' })], nodes)
  t.equal(await own.find(mac(3)), 'node003')
  t.equal(await own.find(mac(2)), undefined, 'and no other table')
})

// rules 4.18
t.test('uplinks are left out; a MAC at two edge ports is nobody', async t => {
  const { port } = await start(t, [
    [
      { mac: mac(1), port: 7 },
      { mac: mac(2), port: 7 },
      { mac: mac(3), port: 5 }
    ],
    [
      { mac: mac(1), port: 1 },
      { mac: mac(2), port: 2 },
      { mac: mac(3), port: 3 }
    ]
  ])
  const nodes = [on('core', 'switch01', 7), ...[1, 2, 3].map(n => on(`node00${n}`, 'switch02', n))]
  const { find, log } = detection(t, port, [sw(1, { uplinkports: 'Ethernet1/7, 1008' }), sw(2)], nodes)
  t.equal(await find(mac(1)), 'node001')
  t.equal(await find(mac(2)), 'node002')
  t.equal(await find(mac(3)), undefined)
  t.equal(await find(mac(3)), undefined)
  t.strictSame(log, [
    `warn unknown MAC ${mac(3)} is at more than one port: switch switch01 port 5 (Ethernet1/5), switch switch02 port 3 (Ethernet1/3); the ports that lead to other switches belong in uplinkports`
  ])
})

// rules 4.18
t.test('a port of two nodes, of none, or with a node that is there already', async t => {
  const { port } = await start(t, [
    [
      { mac: mac(1), port: 1 },
      { mac: mac(2), port: 2 },
      { mac: mac(3), port: 3 },
      { mac: mac(33), port: 3 },
      { mac: mac(4), port: 4 }
    ]
  ])
  const { find, log } = detection(
    t,
    port,
    [sw(1)],
    [
      on('node001', 'switch01', 1),
      on('node009', 'switch01', 'Ethernet1/1'),
      on('node003', 'switch01', 3, mac(33)),
      on('node004', 'switch01', 4, mac(44))
    ]
  )
  for (const n of [1, 2, 3]) t.equal(await find(mac(n)), undefined)
  t.equal(await find(mac(4)), 'node004', 'its old machine is not there any more: this one takes its place')
  t.strictSame(log, [
    `warn unknown MAC ${mac(1)} is at switch switch01 port 1 (Ethernet1/1), where more than one node is: node001, node009`,
    `warn unknown MAC ${mac(2)} is at switch switch01 port 2 (Ethernet1/2), where no node is`,
    `warn unknown MAC ${mac(3)} is at switch switch01 port 3 (Ethernet1/3) beside ${mac(33)}, which node node003 has already`
  ])
})

// rules 4.18
t.test('a machine with very many MACs is told at a pace', async t => {
  const macs = Array.from({ length: 200 }, (_, n) => mac(n))
  const { port } = await start(t, [macs.map(mac => ({ mac, port: 2 }))])
  const { find, log, pass } = detection(t, port, [sw(1)], [])
  for (const mac of macs) await find(mac)
  t.equal(log.length, 60)
  pass(60_000)
  for (const mac of macs) await find(mac)
  t.equal(log.length, 70, 'ten more, of those that were not told')
})

// rules 4.18
t.test('what a switch said holds for 30 s, for all machines and until its object changes', async t => {
  const { port, running } = await start(t, [[{ mac: mac(1), port: 1 }]])
  const [first] = running
  const nodes = [on('node001', 'switch01', 1), on('node002', 'switch01', 2)]
  const { find, pass, switches } = detection(t, port, [sw(1)], nodes)
  t.strictSame(await Promise.all([1, 2, 1, 2].map(n => find(mac(n)))), [
    'node001',
    undefined,
    'node001',
    undefined
  ])
  first?.learn([{ mac: mac(2), port: 2 }])
  pass(29_999)
  t.equal(await find(mac(2)), undefined)
  t.equal(first?.walks(), 1)
  pass(1)
  t.equal(await find(mac(2)), 'node002')
  t.equal(first?.walks(), 2)
  switches[0] = sw(1, { comment: 'moved' })
  t.equal(await find(mac(2)), 'node002')
  t.equal(first?.walks(), 3)
})

t.test('a dead switch is waited for once, within the 2 s, and named once', async t => {
  const { port, running } = await start(t, [[{ mac: mac(1), port: 1 }]])
  const dead = await deadSwitch(t, { address: address(2), port })
  const { find, pass, log } = detection(t, port, [sw(1), sw(2)], [on('node001', 'switch01', 1)])
  const began = performance.now()
  t.strictSame(await Promise.all(Array.from({ length: 20 }, () => find(mac(1)))), Array(20).fill('node001'))
  t.comment(`a dead switch: ${Math.round(performance.now() - began)} ms`)
  const asked = dead.asked()
  t.ok(asked > 0)
  t.equal(await find(mac(1)), 'node001')
  t.equal(dead.asked(), asked, 'it is left in peace')
  t.equal(running[0]?.walks(), 1)
  pass(30_000)
  t.equal(await find(mac(1)), 'node001')
  t.ok(dead.asked() > asked)
  t.strictSame(log, [
    'warn switch switch02 cannot be asked which machines are at its ports: it does not answer (3 tries, 500 ms each)'
  ])
})

t.test('a switch that comes back is asked again, and that is said', async t => {
  const { port, running } = await start(t, [[{ mac: mac(1), port: 1 }]])
  await running[0]?.stop()
  const { find, pass, log } = detection(t, port, [sw(1)], [on('node001', 'switch01', 1)])
  t.equal(await find(mac(1)), undefined)
  await startSwitch(t, { address: address(1), port }, [{ mac: mac(1), port: 1 }], 8)
  t.equal(await find(mac(1)), undefined)
  pass(30_000)
  t.equal(await find(mac(1)), 'node001')
  t.strictSame(log.slice(1), ['info switch switch01 answers over SNMP again'])
})

t.test('closed, it waits for no switch and blames none', async t => {
  const port = await freePort()
  const dead = await deadSwitch(t, { address: address(1), port })
  const { find, close, log } = detection(t, port, [sw(1)], [on('node001', 'switch01', 1)])
  const found = find(mac(1))
  while (dead.asked() === 0) await new Promise(setImmediate)
  close()
  t.equal(await found, undefined)
  t.equal(await find(mac(1)), undefined)
  t.strictSame(log, [])
})

t.test('SNMPv3, and what is wrong with it is said without a secret', async t => {
  const { port } = await start(t, [[{ mac: mac(1), port: 1 }]])
  const nodes = [on('node001', 'switch01', 1)]
  const ask = async (read: string) => {
    const { find, log } = detection(t, port, [sw(1, { read })], nodes)
    return { node: await find(mac(1)), log }
  }
  t.strictSame(await ask('v3:reader:long enough:private enough'), { node: 'node001', log: [] })
  const wrong = ['v3:reader:not the password:private enough', 'v3:reader', 'wrong community', 'v3:']
  for (const { node, log } of await Promise.all(wrong.map(ask))) {
    t.equal(node, undefined)
    t.equal(log.length, 1)
    t.match(log[0], /switch01 cannot be asked .*: it(s answer is| does not answer| refuses)/)
    t.notMatch(log[0], /password|private|community/)
  }
})

t.test('a switch that answers nonsense is one that cannot be asked', async t => {
  const port = await freePort()
  const socket = createSocket('udp4').bind(port, address(1))
  await once(socket, 'listening')
  t.teardown(() => void socket.close())
  // Each question comes back as its own answer, or as a report of SNMPv3, with one byte of it changed:
  // another one each time.
  let count = 0
  socket.on('message', (question, from) => {
    const answer = Buffer.from(question)
    const kind = answer.indexOf(0xa5, 7 + community.length)
    answer[kind] = count % 2 ? 0xa2 : 0xa8
    const at = kind + 1 + (count % (answer.length - kind))
    answer[at] = (answer[at] ?? 0) ^ (1 << (count % 8))
    count++
    socket.send(answer, from.port, from.address)
  })
  const all = Array.from({ length: 100 }, () => detection(t, port, [sw(1)], [on('node001', 'switch01', 1)]))
  t.strictSame(await Promise.all(all.map(({ find }) => find(mac(1)))), Array(100).fill(undefined))
  const log = all.flatMap(one => one.log)
  t.comment(
    `${count} answers; ${JSON.stringify([...new Set(log.map(line => line.replace(/.*: it/, 'it')))])}`
  )
  t.notMatch(log.join('\n'), community)
})
