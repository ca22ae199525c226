import t, { type Test } from 'tap'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { dimms, machine } from './machines.js'

/** A controller with three nodes of group compute that have reported, and what posts the report of another machine. */
async function started(test: Test) {
  const c = await Controller.start(test)
  await c.cluster()
  for (const n of [1, 2, 3])
    await c.post(`/config/node/n${n}`, { group: 'compute', macaddr: `52:54:00:00:00:0${n}` })
  const tokens = new Map<string, string>()
  for (const n of [1, 2, 3]) tokens.set(`n${n}`, await scriptToken(c, `n${n}`))
  const report = (node: string, more = {}) =>
    c.post(
      `/monitor/inventory/${node}`,
      { monitor: { inventory: { [node]: machine(more) } } },
      { token: tokens.get(node) ?? null }
    )
  for (const n of [1, 2, 3]) test.equal((await report(`n${n}`)).status, 204)
  return { c, report, tokens }
}

// rules 6.16
t.test('an inventory is posted, shown and listed', async t => {
  const { c, report } = await started(t)
  const shown = (await c.get('/monitor/inventory/n1')).body.monitor.inventory.n1
  t.match(shown, machine())
  t.match(shown.since, /^\d{4}-/)
  t.strictSame((await c.get('/monitor/inventory')).body.monitor.inventory.n1, shown)
  const chosen = '/monitor/inventory?nodes=n[1-2]&fields=name,cpu.model,memory.total,gpus,disks.0'
  t.match(await c.get(chosen), { status: 400, body: { message: /^an inventory shows no field "disks\.0"/ } })
  t.notMatch((await c.get(chosen)).body.message, /BOOTIF/)
  const csv = await c.get(
    '/monitor/inventory?nodes=n[1-2]&fields=name,cpu.model,memory.total,gpus,infiniband&format=csv'
  )
  t.equal(
    csv.text,
    'name,cpu.model,memory.total,gpus,infiniband\r\nn1,CPU,268435456000,4 x 10de:20b5,\r\nn2,CPU,268435456000,4 x 10de:20b5,\r\n'
  )
  t.match(
    (await c.get('/monitor/inventory?fields=name,memory.total&sort=-memory.total')).body.monitor.inventory,
    {
      n3: { 'memory.total': 268_435_456_000 }
    }
  )
  t.match(
    (await c.get('/monitor/inventory?format=text')).text,
    /^name +system\.product .*\nn1 +R740 +CPU +2 /
  )
  await report('n2', { system: { maker: '=cmd()', product: '\x1b[31m' } })
  t.match((await c.get('/monitor/inventory?fields=system.maker&format=csv')).text, "'=cmd()")
  t.notMatch((await c.get('/monitor/inventory?format=text')).text, '\x1b')
  await c.post('/config/node/new', {})
  t.match(await c.get('/monitor/inventory/new'), {
    status: 404,
    body: { message: /node new has reported no inventory/ }
  })
})

t.test('a report names what is wrong in it, and is no node of its own', async t => {
  const { c, tokens } = await started(t)
  const post = (body: object, more = {}) =>
    c.post('/monitor/inventory/n1', body, { token: tokens.get('n1') ?? null, ...more })
  t.match(await post({ memory: { slots: [{ size: 'x' }] } }), {
    status: 400,
    body: {
      message: 'inventory of node n1: memory.slots[0].size must be a whole number that is not negative'
    }
  })
  t.equal((await post({}, { token: tokens.get('n2') })).status, 403)
  t.equal((await post({}, { token: null })).status, 401)
  t.equal((await post({ later: 'x'.repeat(70_000) })).status, 413)
  t.match((await c.get('/monitor/inventory/n1')).body.monitor.inventory.n1, { kernel: '6.1.0' })
})

t.test('a change of the hardware is an event, a line of the audit log and one of the log', async t => {
  const { c, report } = await started(t)
  const { mark } = (await c.get('/monitor/overview')).body.monitor.overview
  t.equal((await report('n1', { memory: { total: 218 * 2 ** 30, slots: dimms(7) } })).status, 204)
  const sentence = 'n1: 7 of 8 DIMMs, 8 at the last boot: A8 is empty'
  t.match((await c.get('/monitor/audit?by=machines')).body.monitor.audit[0], {
    ...{ who: 'node n1', action: 'update', type: 'inventory', name: 'n1', after: { hardware: sentence } }
  })
  t.ok(c.log.some(line => line.includes(sentence)))
  await new Promise(done => setTimeout(done, 300))
  const { text } = await c.get('/monitor/events?follow=no', { headers: { 'last-event-id': mark } })
  t.match(text, `event: hardware\ndata: {"node":"n1","changes":["${sentence}"]`)
  await c.restart()
  t.match((await c.get('/monitor/inventory/n1')).body.monitor.inventory.n1.memory.slots[7], { size: 0 })
})

// rules 6.17
t.test('the node that is not like the others is told, counted and marked', async t => {
  const { c, report } = await started(t)
  t.strictSame((await c.get('/monitor/odd')).body, { monitor: { odd: [] } })
  await report('n3', { memory: { total: 218 * 2 ** 30, slots: dimms(7) } })
  const { odd } = (await c.get('/monitor/odd?nodes=@compute')).body.monitor
  t.strictSame(odd[1], {
    ...{
      name: 'n3',
      group: 'compute',
      fact: 'dimms',
      value: '7 x 32 GiB',
      usual: '8 x 32 GiB',
      nodes: '2 of 3'
    },
    difference: 'dimms: 7 x 32 GiB; 2 of 3 nodes of group compute have 8 x 32 GiB'
  })
  t.equal(odd.length, 2)
  t.match((await c.get('/monitor/odd?nodes=n1&format=text')).text, /^name +difference\n?$/)
  t.match((await c.get('/metrics')).text, '\nsvcd_nodes_odd{group="compute"} 1\n')
  const { columns, nodes } = (await c.get('/monitor/overview')).body.monitor.overview
  const at = columns.indexOf('odd')
  t.strictSame(
    nodes.map((row: unknown[]) => [row[0], row[at] === null]),
    [
      ['n1', true],
      ['n2', true],
      ['n3', false]
    ]
  )
  await c.post('/config/node/n3', { newhostname: 'n9' })
  t.strictSame(
    (await c.get('/monitor/odd')).body.monitor.odd.map((one: { name: string }) => one.name),
    ['n9', 'n9']
  )
  await c.get('/config/node/n9/_delete')
  t.strictSame((await c.get('/monitor/odd')).body.monitor.odd, [])
})
