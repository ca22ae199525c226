import t from 'tap'
import { macProblem, parseMac } from '../../lib/model/names.js'
import { populated } from '../support/routes.js'

const guid = '00:02:c9:03:00:1a:2b:3c'
const port = `80:00:00:48:fe:80:00:00:00:00:00:00:${guid}`

// rules 3.9
t.test('a MAC, a GUID, and the address of an InfiniBand port, in each notation', async t => {
  const notations: Readonly<Record<string, readonly string[]>> = {
    '52:54:00:ab:cd:ef': [
      '52:54:00:AB:CD:EF',
      '52-54-00-ab-cd-ef',
      '5254.00ab.cdef',
      '525400abcdef',
      '0x525400abcdef'
    ],
    [guid]: [
      guid.toUpperCase(),
      guid.replaceAll(':', '-'),
      '0002c903001a2b3c',
      '0x0002c903001a2b3c',
      '0002:c903:001a:2b3c',
      '0002.c903.001a.2b3c',
      port,
      port.toUpperCase(),
      port.replaceAll(':', ''),
      port.replaceAll(':', '-'),
      // Of another queue pair, as after a restart.
      `a0:00:02:20:fe:80:00:00:00:00:00:00:${guid}`
    ]
  }
  for (const [mac, all] of Object.entries(notations))
    for (const text of all) t.equal(parseMac(text), mac, text)
  const wrong = ['', ':', '52:54:00:ab:cd', '52:54:00:ab:cd:ef:01', '52:54:00-ab-cd-ef', '5254:00ab:cdef']
  wrong.push(
    `${port}:00`,
    port.slice(3),
    '0002c903001a2b3',
    '0x',
    `0x${'0'.repeat(57)}`,
    '52:54:00:ab:cd:eg',
    `${guid}\n`
  )
  for (const text of wrong) t.equal(parseMac(text), undefined, JSON.stringify(text))
  for (const mac of [
    '01:00:5e:00:00:01',
    '33:33:00:00:00:01',
    'ff:ff:ff:ff:ff:ff',
    '00:00:00:00:00:00',
    'ff'.repeat(8).replace(/(..)(?!$)/g, '$1:'),
    '00:00:00:00:00:00:00:00'
  ])
    t.match(macProblem(mac), /./, mac)
  for (const mac of ['52:54:00:ab:cd:ef', guid, '03:00:00:00:00:00:00:01'])
    t.equal(macProblem(mac), undefined, mac)
})

// rules 3.9, 4.1
t.test('a port is known by its GUID: one owner, and its script', async t => {
  const c = await populated(t)
  const entry = (macaddress: string) => ({
    interfaces: [{ interface: 'ib0', network: 'cluster', macaddress }]
  })
  t.equal((await c.post('/config/node/n7', entry(port))).status, 201)
  t.match((await c.get('/config/node/n7')).text, `"macaddress":"${guid}"`)
  const other = await c.post('/config/node/n8', entry(`00:00:00:01:fe:80:00:00:00:00:00:00:${guid}`))
  t.match([other.status, other.text], [400, /belongs to node n7 \(ib0\)/])
  t.equal((await c.post('/config/node/n7', { ...entry(guid), comment: 'the same' })).status, 204)
  const asked = await c.get(`/boot/search/mac/${encodeURIComponent(port)}`, { token: '' })
  t.match(asked.text, /node n7|n7/)
})

// rules 3.9
t.test('addresses that no card has are refused, wherever they are given', async t => {
  const c = await populated(t)
  const refused = async (path: string, body: object, why: RegExp) => {
    const { status, text } = await c.post(path, body)
    t.match([status, text], [400, why], `${path} ${JSON.stringify(body)}`)
  }
  const cases: Readonly<Record<string, RegExp>> = {
    '00:00:00:00:00:00':
      /n1 \(BOOTIF\): MAC 00:00:00:00:00:00 is all zeros, which firmware reports when it has no address/,
    'FF-FF-FF-FF-FF-FF': /MAC ff:ff:ff:ff:ff:ff is the broadcast address/,
    '01005e000001': /MAC 01:00:5e:00:00:01 is a multicast address/,
    '0000000000000000': /is all zeros/
  }
  for (const [macaddress, why] of Object.entries(cases)) {
    await refused('/config/node/n1', { macaddr: macaddress }, why)
    await refused('/config/node/n1', { interfaces: [{ interface: 'BOOTIF', macaddress }] }, why)
    await refused(
      '/config/switch/sw1',
      { macaddress },
      new RegExp(why.source.replace('n1 \\(BOOTIF\\)', 'switch sw1'))
    )
  }
  const console = await c.get('/boot/manual/hostname/n1/01:00:5e:00:00:01', { token: '' })
  t.match(console.text, /multicast/)
  t.notMatch((await c.get('/config/node/n1')).text, '01:00:5e')
})
