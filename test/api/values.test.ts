import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Field } from '../../lib/model/field.js'
import { interfaceFields } from '../../lib/model/types/interface.js'
import { objectTypes } from '../../lib/model/types.js'
import { literal, refused } from '../support/refused.js'
import { populated } from '../support/routes.js'
import { read } from '../support/state.js'

const c = await populated(t)

/** Values that are not of a field's JSON type; '' and null stand for "not set" everywhere. */
const wrongTypes: Readonly<Record<Field['type']['json'], readonly unknown[]>> = {
  // A list of servers is taken where a text of several is; no list holds such a word.
  string: [0, 5, 1.5, true, false, [], [5], ['x!'], {}, { x: 1 }],
  boolean: [0, 1, 'true', 'false', 'yes', [], {}],
  integer: [true, 1.5, -1, [], [5], {}, 1e300, 2 ** 53, -0.5],
  array: ['x', 5, true, {}, [5], [null], [['x']], ['x', false]],
  object: ['x', 5, true, []],
  null: ['x', 5, 0, true, false, [], {}]
}

// rules 1.8, 6.5
t.test('a value of the wrong type: 400 names the object, the field and the type', async t => {
  for (const { type, title, fields } of Object.values(objectTypes)) {
    const bodies = fields.flatMap((field: Field) =>
      [field.name, ...(field.otherSpellings ?? [])].flatMap(name =>
        wrongTypes[field.type.json].map(
          value =>
            [
              { [name]: value },
              new RegExp(`^${title} new: field "${name}"`),
              literal(field.type.expected)
            ] as const
        )
      )
    )
    t.equal(bodies.length > 20, true)
    await refused(t, c, `/config/${type}/new`, bodies)
    for (const key of [...objectTypes[type].newName, 'name'])
      await refused(
        t,
        c,
        `/config/${type}/new`,
        [5, null, true, [], {}, 'a b'].map(value => [{ [key]: value }, /new/, new RegExp(key)])
      )
  }
  const unknown = [
    [
      { mac: 'x' },
      /there is no field "mac" here \(did you mean "macaddr"\?\), only "group", "macaddr", "switch", .*"assettag", .*"variables", .*$/
    ],
    [{ ipaddress: '10.0.0.1' }, /there is no field "ipaddress" here, .*; "interfaces" take "ipaddress"$/]
  ] as const
  const overrides = [5, 'yes', [], {}].map(
    value => [{ _override: value }, /"_override".*must be true or false/] as const
  )
  await refused(t, c, '/config/node/n1', [...unknown, ...overrides])
  await refused(
    t,
    c,
    '/config/node/n1',
    [0, {}, [], true].map(value => [{ bmcsetup: value === true ? [true] : value }, /"bmcsetup"/])
  )
  await refused(
    t,
    c,
    '/config/osimage/compute',
    [5, {}, [], true].map(value => [{ torrent: value }, /"torrent"/])
  )
})

// rules 1.9, 6.5
t.test('interfaces: wrong shapes, types and names', async t => {
  const entries = (interfaceFields as readonly Field[]).flatMap(({ name, type }) =>
    wrongTypes[type.json].map(
      value => [{ interfaces: [{ interface: 'x', [name]: value }] }, /interface/] as const
    )
  )
  const shapes = [
    null,
    'x',
    5,
    {},
    { BOOTIF: {} },
    [null],
    ['x'],
    [[]],
    [{}],
    [{ network: 'cluster' }],
    [{ interface: null }],
    [{ interface: '' }]
  ]
  const bodies = [
    ...entries,
    ...shapes.map(interfaces => [{ interfaces }, /"interfaces/] as const),
    [
      { interfaces: [{ interface: 'x', nonsense: 1 }] },
      /interface x: there is no field "nonsense" here, only "interface"/
    ],
    [{ interfaces: [{ interface: 'x', constructor: 1 }] }, /interface x: there is no field "constructor"/],
    [{ interfaces: [{ interface: 'x', force: 'yes' }] }, /interface x: field "force".*must be true or false/],
    [{ interfaces: [{ interface: 'a' }, { interface: 'a' }] }, /interface a a second time/],
    [{ interfaces: [{ interface: '../x', network: 'cluster' }] }, /"interface"/],
    [{ interfaces: [{ interface: 'x', network: 'a b' }] }, /interface x: field "network"/],
    [
      {
        interfaces: [
          { interface: 'x', network: 'cluster' },
          { interface: 'y', network: 'none' }
        ]
      },
      /none/
    ]
  ] as const
  for (const path of ['/config/group/compute', '/config/node/n1'])
    for (const suffix of ['', '/interfaces']) await refused(t, c, `${path}${suffix}`, bodies)
  const nodes = [
    '10.141.0.999',
    '10.141',
    '10.141.0.01',
    '::1',
    '10.142.0.1',
    '10.141.0.0',
    '10.141.255.255',
    '10.141.255.253'
  ]
  await refused(
    t,
    c,
    '/config/node/n1',
    nodes.map(ipaddress => [{ interfaces: [{ interface: 'BOOTIF', ipaddress }] }, /BOOTIF/])
  )
  const macs = [
    'x',
    '52:54:00:00:00',
    '52:54:00:00:00:0g',
    '52-54:00:00:00:01',
    '5254000000011',
    ' 52:54:00:00:00:02'
  ]
  await refused(
    t,
    c,
    '/config/node/n1',
    macs.map(macaddr => [{ macaddr }, /"macaddr".*MAC/])
  )
  await refused(t, c, '/config/group/compute', [
    [{ interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.9' }] }, /BOOTIF.*"ipaddress"/]
  ])
})

// rules 4.2, 6.5, 6.6
t.test('values that a field does not hold', async t => {
  const nul = ['comment', 'vendor', 'switch', 'switchport', 'tpm_pubkey'].map(
    field => [{ [field]: 'a\0b' }, new RegExp(`"${field}".*NUL`)] as const
  )
  const scripts = ['x', '====', 'YQ', 'YQ=', 'Y Q==', 'YQ==YQ==', '_-8=', 'YQ\u00e9='].map(
    prescript => [{ prescript }, /"prescript".*base64/] as const
  )
  const names = ['a b', '../x', '-x', '.x', 'x/y', 'x\n', '\u00e9', 'x'.repeat(64)]
  await refused(t, c, '/config/node/n1', [
    ...nul,
    ...scripts,
    ...names.flatMap(name =>
      ['group', 'osimage', 'osimagetag', 'bmcsetupname', 'provision_interface', 'provision_method'].map(
        field => [{ [field]: name }, new RegExp(`"${field}"`)] as const
      )
    ),
    ...['a,,b', 'a b', ',', 'a;b', '../a'].map(roles => [{ roles }, /"roles"/] as const),
    ...['Delete', 'none', 'x'].map(
      unmanaged_bmc_users => [{ unmanaged_bmc_users }, /disable, delete/] as const
    ),
    ...['a b', 'a..b', '.a', 'a/b', 'x'.repeat(254), "a'b", 'a$b'].map(
      domain => [{ domain }, /"domain"/] as const
    )
  ])
  await refused(t, c, '/config/osimage/compute', [
    ...['image', './image', '../image', '/srv/../etc', '/..'].map(
      path => [{ path }, /"path".*absolute/] as const
    ),
    ...[
      '../x',
      '/etc/passwd',
      'a/b',
      '.x',
      'a b',
      'disk',
      'short',
      'search',
      'install',
      'x'.repeat(201),
      'a\nb',
      '$(id)'
    ].flatMap(file =>
      ['kernelfile', 'initrdfile', 'imagefile', 'tarball'].map(
        field => [{ [field]: file }, new RegExp(`"${field}"`)] as const
      )
    ),
    ...['a\nb', 'a ${b}', 'a ; b', 'a #b', 'a && b', 'a || b', '\u00e9', 'a\tb', ';'].map(
      kerneloptions => [{ kerneloptions }, /"kerneloptions"/] as const
    )
  ])
  await refused(t, c, '/config/bmcsetup/boards', [
    ...[-1, 16, 1.5, 2 ** 53, -(2 ** 53)].map(
      mgmtchannel => [{ mgmtchannel }, /"mgmtchannel".*from 0 to 15/] as const
    ),
    ...[-1, 16].map(netchannel => [{ netchannel }, /"netchannel".*from 0 to 15/] as const),
    ...[0, 64, -1].map(userid => [{ userid }, /"userid".*from 1 to 63/] as const),
    ['{"userid":1e400}', /line 1/],
    ['{"userid":99999999999999999999}', /"userid"/]
  ])
  for (const [sent, kept] of [
    ['1.0', 1],
    ['1e1', 10],
    ['15', 15],
    ['0', 0],
    ['-0', 0]
  ] as const) {
    t.equal((await c.post('/config/bmcsetup/boards', `{"mgmtchannel":${sent}}`)).status, 200, sent)
    t.equal((await read(c, 'bmcsetup', 'boards')).mgmtchannel, kept)
  }
})

// rules 1.11
t.test('a masked value that is posted back is no new value', async t => {
  for (const [type, name, field] of [
    ['bmcsetup', 'boards', 'password'],
    ['switch', 'sw1', 'read']
  ] as const) {
    const before = (await read(c, type, name))[field]
    t.type(before, 'string')
    await c.post(`/config/${type}/${name}`, { [field]: '********', comment: 'seen by a viewer' })
    t.match(await read(c, type, name), { [field]: before, comment: 'seen by a viewer' })
    await c.post(`/config/${type}/${name}`, { comment: null })
  }
})

// rules 6.5
t.test('switchport is an integer or the name of a port', async t => {
  for (const port of [0, 7, 4_294_967_295, '7', 'Gi1/0/1', 'ethernet "1"']) {
    t.equal((await c.post('/config/node/n', { switch: 'sw', switchport: port })).status % 100 < 5, true)
    t.equal((await read(c, 'node', 'n')).switchport, port)
  }
  await c.post('/config/node/n', { switchport: '' })
  t.equal((await read(c, 'node', 'n')).switchport, null)
})

// rules 1.8, 6.5
t.test('a long value is taken or refused as a short one is, in a request and in an import', async t => {
  const long = 'A'.repeat(24_000_000)
  const requests: (readonly [type: string, name: string, body: object, status: number, says: RegExp])[] = [
    ['group', 'compute', { postscript: long }, 204, /./],
    ['group', 'compute', { postscript: `${long}!` }, 400, /"postscript" must be valid base64/],
    ...(process.env.SVCD_LONG
      ? [['group', 'compute', { postscript: `${long}=` }, 400, /"postscript" must be valid base64/] as const]
      : []),
    ['switch', 'rack1', { oid: '.1'.repeat(12_000_000) }, 400, /"oid" must be an SNMP object identifier/]
  ]
  for (const [type, name, body, status, says] of requests) {
    const reply = await c.post(`/config/${type}/${name}`, body)
    t.equal(reply.status, status, reply.text.slice(0, 200))
    if (status === 400) {
      t.match(reply.body.message, says)
      const imported = await c.post('/config/cluster/import', { [type]: { [name]: body } })
      t.equal(imported.status, 400, imported.text.slice(0, 200))
      t.match(imported.body.message, says)
    }
  }
  const list = Array.from({ length: 200_000 }, (_, i) => `/var/${i}`)
  t.equal((await c.post('/config/osimage/long', { grab_exclude: list })).status, 201)
  // As an editor may leave it: on one line.
  const file = join(c.directory, 'state', 'osimage', 'long.json')
  await c.restart(() => writeFileSync(file, JSON.stringify(JSON.parse(readFileSync(file, 'utf8')))))
  t.same((await read(c, 'osimage', 'long')).grab_exclude, list, 'a long list is there after a restart')
  await c.get('/config/osimage/long/_delete')
  await c.post('/config/group/compute', { postscript: null })
})
