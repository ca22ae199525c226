import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { builtTree, svcd } from '../support/built-tree.js'
import { Controller } from '../support/controller.js'
import { documents, read } from '../support/state.js'

const c = await Controller.start(t)
await c.cluster()
await c.post('/config/group/other', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
await c.post('/config/node/old', { group: 'compute', comment: 'stays', service: true })
const path = '/config/node?format=csv'
const table = (...lines: string[]) => lines.join('\r\n')

// rules 12.8
t.test('nodes are created and changed, all in one', async t => {
  const text = table(
    '\ufeffname,group,comment,service,BOOTIF.macaddress,BOOTIF.ipaddress,unmanaged_bmc_users',
    'n1,compute,"says ""a, b""",yes,52-54-00-00-00-01,10.141.0.7,delete',
    'n2,compute,"two\nlines",no,,,',
    '',
    'old,,,false,,,'
  )
  t.match(await c.post(path, text), { status: 200, body: { message: '2 nodes created, 1 changed' } })
  t.match(await read(c, 'node', 'n1'), {
    ...{ group: 'compute', comment: 'says "a, b"', service: true, macaddr: '52:54:00:00:00:01' },
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.7' }]
  })
  t.match(await read(c, 'node', 'n2'), {
    comment: 'two\nlines',
    interfaces: [{ ipaddress: /^10\.141\./ }]
  })
  t.match(await read(c, 'node', 'old'), { group: 'compute', comment: 'stays', service: false })
  const audit = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
    .trim()
    .split('\n')
  t.match(
    audit.slice(-3).map(line => JSON.parse(line)),
    [
      { action: 'create', names: 'n1', after: { comment: 'says "a, b"', service: true } },
      { action: 'create', names: 'n2', after: { comment: 'two\nlines' } },
      { action: 'update', names: 'old', count: 1, before: { service: true }, after: {} }
    ],
    'each with its fields'
  )
})

// rules 11.4
t.test('nodes that a table changes alike share a line of the audit log', async t => {
  await c.post(path, 'name,service\nn1,no\nn2,no\nold,yes\n')
  await c.post(path, 'name,service\nn1,yes\nn2,yes\nold,no\n')
  const audit = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
    .trim()
    .split('\n')
  t.match(
    audit.slice(-2).map(line => JSON.parse(line)),
    [
      { action: 'update', count: 2, names: 'n[1-2]', before: {}, after: { service: true } },
      { action: 'update', count: 1, names: 'old', before: { service: true }, after: {} }
    ]
  )
})

t.test('a list that was written as CSV changes nothing', async t => {
  const before = await documents(c)
  const { text } = await c.get('/config/node?format=csv&fields=name,group,comment,service,macaddr,osimagetag')
  t.match(await c.post(path, text), { status: 200, body: { message: '0 nodes created, 0 changed' } })
  t.same(await documents(c), before)
  const whole = await c.get('/config/node?format=csv')
  t.match(await c.post(path, whole.text), { status: 200, body: { message: '0 nodes created, 0 changed' } })
})

t.test('every line that is wrong is named; nothing is changed', async t => {
  const before = await documents(c)
  const refused: [text: string, ...says: RegExp[]][] = [
    ['', /^the table is empty/],
    [
      'name|group\na|b',
      /^the table is refused, nothing was changed: its cells are separated by "\|": separate them by commas$/
    ],
    ['name\tgroup\na\tb', /separated by tabs: separate them by commas$/],
    ['group,comment\na,b', /line 1: no column is called "name"/],
    ['name,colour', /line 1, column 2: a node has no field "colour": take this column out$/],
    ['name,group,group', /line 1, column 3: "group" stands in column 2 too/],
    ['name,BOOTIF.colour', /line 1, column 2: a node has no field "BOOTIF.colour"/],
    ['name,comment\nn5', /line 2: the line has 1 cells, the table 2 columns/],
    ['name,comment\nN 5,x', /line 2, column 1 \(name\): a name must be a host name/],
    ['name\nn5\nn5', /line 3: node n5 is in line 2 too/],
    ['name,comment\nn5,"open', /cannot be read.*(?:quote|Quote)/],
    [
      'name,service,macaddr,group\nn5,maybe,zz,compute\n\nn6,yes,,none\nn7,yes,52:54:00:00:00:01,compute',
      /line 2, column 2 \(service\): .*must be yes or no, not "maybe"/,
      /line 2, column 3 \(macaddr\): .*must be a MAC address/
    ],
    [
      'name,macaddr,group\nn6,,none\nn7,52:54:00:00:00:01,compute',
      /line 2: node n6: group none does not exist/,
      /line 3: .*52:54:00:00:00:01 belongs to node n1/
    ],
    ['name,BOOTIF.ipaddress,group\nn8,10.9.9.9,compute', /line 2: .*10\.9\.9\.9/]
  ]
  for (const [text, ...says] of refused) {
    const { status, body } = await c.post(path, text)
    t.equal(status, 400, text)
    for (const one of says) t.match(body.message, one, text)
  }
  const many = ['name,macaddr', ...Array.from({ length: 30 }, (_, i) => `x${i},bad`)].join('\n')
  t.match(
    (await c.post(path, many)).body.message,
    /: 30 lines: column 2 \(macaddr\): .*must be a MAC address.*, not "bad", first in line 2$/
  )
  t.match(await c.post('/config/node', 'name\nx'), { status: 400, body: { message: /takes a table/ } })
  t.match(await c.post(path, Buffer.from([0x6e, 0xff])), {
    status: 400,
    body: {
      message:
        /^the body is not valid UTF-8: save the table as "CSV UTF-8", or .* iconv -f CP1252 -t UTF-8 FILE$/
    }
  })
  t.same(await documents(c), before)
})

t.test('a dry run', async t => {
  const before = await documents(c)
  const { status, body } = await c.post(`${path}&dryrun=yes`, 'name,group\nn9,compute\nn1,other')
  t.equal(status, 200)
  t.match(body.changes.map(({ name, action }: Record<string, string>) => `${action} ${name}`).sort(), [
    'create n9',
    'update n1'
  ])
  t.same(await documents(c), before)
})

t.test('lines that are wrong alike are told once, and others beside them', async t => {
  const said = async (head: string, ...lines: string[]) => {
    const { status, body } = await c.post(path, [head, ...lines].join('\n'))
    t.equal(status, 400)
    return body.message as string
  }
  const alike = Array.from({ length: 20 }, (_, i) => `x${i},none,,`)
  const right = Array.from({ length: 56 }, (_, i) => `y${i},compute,,`)
  t.match(
    await said('name,group,mac,ip', ...right, ...alike),
    /: 20 lines: node x0: group none does not exist.*, first in line 58$/
  )
  const two = await said('name,group', 'a1,none', 'a2,nowhere', 'a3,none', 'a4,nowhere', 'a5,none')
  t.match(two, /3 lines: .*group none .*, first in line 2/)
  t.match(two, /line 3: .*group nowhere /)
  t.match(two, /line 5: .*group nowhere /)
  // A few hundred ways to be wrong take no more room than a few.
  const ways = Array.from({ length: 300 }, (_, i) => `z${i},g${i}`)
  const long = await said('name,group', ...ways)
  t.match(long, /line 2: .*line 21: .*; and 280 more$/)
  t.ok(long.length < 4000, String(long.length))
})

t.test('a table from a spreadsheet', async t => {
  const text = table(
    '\ufeff Host Name , GROUP,Comment,MAC, ip ,BMC_MAC,bmc-ip,Variables.rack,variables.Role,BOOTIF.IPADDRESS'.replace(
      ',BOOTIF.IPADDRESS',
      ''
    ),
    'm11 , compute ,  two words , 52:54:00:00:0b:01 ,\u00a010.141.0.111\u00a0,,, r1 ,login',
    'm12,compute,,5254.0000.0b02,,,,r2,   '
  )
  t.match(await c.post(path, text), { status: 200, body: { message: '2 nodes created, 0 changed' } })
  t.match(await read(c, 'node', 'm11'), {
    ...{ group: 'compute', comment: '  two words ', macaddr: '52:54:00:00:0b:01' },
    variables: { rack: 'r1', Role: 'login' },
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.111' }]
  })
  t.match(await read(c, 'node', 'm12'), { variables: { rack: 'r2' } })
  t.match(await c.post(path, 'name,variables.rack\nm11,r9'), { status: 200 })
  t.match(await read(c, 'node', 'm11'), { variables: { rack: 'r9', Role: 'login' } })
  for (const [text, why] of [
    ['name,MAC,macaddr\na,,', /column 3: "macaddr" stands in column 2 too/],
    ['name,IP,BOOTIF.ipaddress\na,,', /column 3: "BOOTIF.ipaddress" stands in column 2 too/],
    ['hostname,Name\na,b', /column 2: "Name" means name, which stands in column 1 too/],
    ['name,gr\u200boup\na,b', /has no field "gr\\u200boup" \(did you mean "group"\?\)/],
    ['name,group\nn\u00a01,b', /column 1 \(name\): a name must be .*, not "n\\u00a01"/],
    ['name,IP\nm11,10.141.0.1\u2800', /column 2 \(IP\): .*10\.141\.0\.1\\u2800/],
    ['name,variables,variables.x\nm11,abc,1', /column 2 \(variables\): /],
    ['name,interfaces,BOOTIF.ipaddress\nm11,abc,10.141.0.9', /column 2 \(interfaces\): /],
    ['name,variables.\nm11,abc', /column 2 \(variables\.\): /]
  ] as const)
    t.match(await c.post(path, text), { status: 400, body: { message: why } }, text)
})

// rules 12.8
t.test('a table from a German spreadsheet', async t => {
  const text = table(
    'name;"GROUP";netboot;comment;;',
    'g1;compute;no;"a;b, c";;',
    'g2;compute;YES;;;',
    ';;;;;',
    ' ; ;;;;'
  )
  t.match(await c.post(path, text), { status: 200, body: { message: '2 nodes created, 0 changed' } })
  t.match(await read(c, 'node', 'g1'), { netboot: false, comment: 'a;b, c' })
  t.match(await read(c, 'node', 'g2'), { netboot: true })
  const refused = [
    ['"a,b";name\n1;2', /line 1, column 1: a node has no field "a,b"/],
    ['name,,comment\ng1,,x\ng2,lost,y', /: line 3, column 2 \(\): [^;]*""[^;]*$/],
    ['name,netboot\ng1,ja', /line 2, column 2 \(netboot\): .* must be yes or no, not "ja"$/],
    [
      'name,group,ip\ng4,,10.9.9.9\ng5,nowhere,\ng6,Compute,10.141.0.99\ng1,,10.9.9.9',
      /: line 2: .*; line 3: .*; line 4: .*its group Compute does not exist \(did you mean "compute"\?\); line 5: /
    ]
  ] as const
  for (const [text, message] of refused)
    t.match(await c.post(path, text), { status: 400, body: { message } }, text)
})

t.test('what a list shows can be read back, all of it', async t => {
  const { body } = await c.get('/config/node?fields=none')
  const fields = /it has (.*), and fields of/.exec(body.message)?.[1]?.split(', ') ?? []
  t.ok(fields.length > 30)
  const { text } = await c.get(`/config/node?format=csv&fields=${fields}`)
  t.match(await c.post(path, text), { status: 200, body: { message: '0 nodes created, 0 changed' } })
})

// rules 12.8
t.test('a table does what its dry run told, or nothing', async t => {
  const text = 'name,group,comment\nm1,compute,new\nold,,seen\n'
  const markOf = async () => (await c.post(`${path}&dryrun=yes`, text)).body.mark
  const refused = async (mark: string, why: string) => {
    const before = await documents(c)
    const { status, body } = await c.post(`${path}&expect=${mark}`, text)
    t.same(
      [status, body.message],
      [400, 'import refused: something has changed since the dry run; make it again'],
      why
    )
    t.same(await documents(c), before)
  }
  let mark = await markOf()
  t.equal(await markOf(), mark)
  await c.post('/config/node/old', { comment: 'meanwhile' })
  await refused(mark, 'what would be replaced is another')
  mark = await markOf()
  await c.post('/config/node/m0', { group: 'compute' })
  await refused(mark, 'the address that was told is given')
  const done = await c.post(`${path}&expect=${await markOf()}`, text)
  t.match(done, { status: 200, body: { message: '1 node created, 1 changed' } })
  t.match(await read(c, 'node', 'old'), { comment: 'seen' })
})

t.test('svcd import --csv', async t => {
  const tree = builtTree(t.testdir())
  const settings = [...c.overrides, `http.listen=127.0.0.1:${c.daemon.port}`]
  const options = ['--config', join(tree, 'etc/svcd.ini'), ...settings.flatMap(setting => ['--set', setting])]
  const file = join(tree, 'nodes.csv')
  writeFileSync(file, 'name,group,comment\nn9,compute,new\n')
  const asked = await svcd(tree, ['import', '--csv', file, ...options])
  t.equal(asked.code, 2)
  t.match(asked.stderr, /^node n9 would be created: .*comment - -> "new"/)
  t.equal((await c.get('/config/node/n9')).status, 404)
  const done = await svcd(tree, ['import', '--csv', '--yes', '-', ...options], readFileSync(file, 'utf8'))
  t.equal(done.stdout, '1 node created, 0 changed\n', done.stderr)
})
