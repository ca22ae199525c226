import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { requireRoot } from '../support/programs.js'
import { community, deadSwitch, type Learned, startSwitch } from './snmp-switch.js'

const long = process.env.SVCD_LONG === '1'
/**
 * MACs in the switch's table; so many of them are machines that switch on at once, the others are behind the
 * uplink.
 */
const [known, machines] = long ? [1000, 500] : [120, 40]
const uplink = machines + 1

// The switches listen on port 161, so each test run has addresses of its own.
const net = `127.${1 + (process.pid % 250)}.${Math.floor(process.pid / 250) % 250}`
const mac = (n: number) =>
  `52:54:00:06:${(n >> 8).toString(16).padStart(2, '0')}:${(n & 255).toString(16).padStart(2, '0')}`
const name = (n: number) => `node${String(n).padStart(3, '0')}`
const source = '10.141.200.1'

async function cluster(
  t: Test,
  detection: 'yes' | 'no',
  switches: Record<string, object>
): Promise<Controller> {
  requireRoot()
  const controller = await Controller.start(t, `boot.snmp_detection=${detection}`)
  await controller.cluster()
  const create = async (path: string, fields: object) => {
    const reply = await controller.post(`/config/${path}`, fields)
    if (reply.status !== 201) throw new Error(`${path}: ${reply.status} ${reply.text}`)
  }
  await create('network/fabric', { network: `${net}.0/24` })
  for (const [of, fields] of Object.entries(switches))
    await create(`switch/${of}`, { network: 'fabric', read: community, ...fields })
  const numbers = Array.from({ length: machines }, (_, i) => i + 1)
  await Promise.all(
    numbers.map(n => create(`node/${name(n)}`, { group: 'compute', switch: 'switch01', switchport: n }))
  )
  return controller
}

const search = (controller: Controller, wanted: string, from = source) =>
  controller.get(`/boot/search/mac/${wanted}`, { token: null, source: from })
const macOf = async (controller: Controller, node: string) =>
  (await controller.get(`/config/node/${node}`)).body.config.node[node].macaddr
const is = (text: string, node: string) => new RegExp(`svc\\.node=${node}\\b`).test(text)

/** Everything learned: the machines at their ports, the others behind the uplink. */
const learned: Learned[] = Array.from({ length: known }, (_, i) => ({
  mac: mac(i + 1),
  port: Math.min(i + 1, uplink),
  vlan: 1 + (i % 3)
}))

// rules 4.18
t.test('machines that nobody knows get the node of their switch port, and its script', async t => {
  const place = { address: `${net}.1`, port: 161 }
  const fabric = await startSwitch(t, place, learned, uplink)
  const controller = await cluster(t, 'yes', {
    switch01: { ipaddress: place.address, uplinkports: `Ethernet1/${uplink}` }
  })
  const numbers = Array.from({ length: machines }, (_, i) => i + 1)

  await t.test('from an address outside all networks nothing is looked for', async t => {
    const reply = await search(controller, mac(1), '192.0.2.1')
    t.match(reply, { status: 200, text: new RegExp(mac(1)) })
    t.notOk(is(reply.text, name(1)))
    t.equal(fabric.walks(), 0)
  })

  // rules 2.5
  await t.test('a HEAD gives no MAC', async t => {
    const ask = { token: null, source, method: 'HEAD' }
    const head = await controller.get(`/boot/search/mac/${mac(1)}`, ask)
    t.match(head, { status: 200, text: '' })
    t.equal(await macOf(controller, name(1)), null)
    const whole = await search(controller, mac(1))
    t.equal(head.headers['content-length'], String(Buffer.byteLength(whole.text)), 'the length is the GET’s')
  })

  await t.test('all at once: one walk, and each is its own node', async t => {
    const began = performance.now()
    const replies = await Promise.all(numbers.map(n => search(controller, mac(n))))
    t.comment(
      `${machines} machines, ${known} MACs in the table: all answered after ${Math.round(performance.now() - began)} ms`
    )
    t.strictSame(
      replies.map((reply, i) => ({ status: reply.status, own: is(reply.text, name(i + 1)) })),
      numbers.map(() => ({ status: 200, own: true }))
    )
    t.equal(fabric.walks(), 1)
    t.strictSame(await Promise.all(numbers.map(n => macOf(controller, name(n)))), numbers.map(mac))
  })

  await t.test('the change is in the audit, by the daemon for that address', async t => {
    const audit = readFileSync(join(controller.directory, 'state', 'audit-machines.log'), 'utf8')
    t.match(
      audit.split('\n').find(line => line.includes(mac(7))),
      new RegExp(`svcd.*${name(7)}|${name(7)}.*svcd`)
    )
    t.ok(controller.log.some(line => line.includes(`MAC ${mac(7)} given to node ${name(7)}`)))
  })

  await t.test('known from now on, and who is behind the uplink stays unknown', async t => {
    const again = await search(controller, mac(7))
    t.ok(is(again.text, name(7)))
    const before = controller.state()
    const behind = await search(controller, mac(uplink + 1))
    t.match(behind, { status: 200, text: new RegExp(mac(uplink + 1)) })
    t.equal(fabric.walks(), 1)
    t.strictSame(controller.state(), before)
  })

  await t.test('the log and the answers hold no community', async t => {
    t.notOk(controller.log.some(line => line.includes(community)))
  })
})

t.test('off, no switch hears a word', async t => {
  const dead = await deadSwitch(t, { address: `${net}.2`, port: 161 })
  const controller = await cluster(t, 'no', { switch01: { ipaddress: `${net}.2` } })
  t.match(await search(controller, mac(1)), { status: 200, text: new RegExp(mac(1)) })
  t.equal(dead.asked(), 0)
})
