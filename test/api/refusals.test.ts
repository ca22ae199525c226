import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { exported, snapshot } from '../support/snapshot.js'

/** What is asked, the status, and every name that the message must say. */
type Refusal = readonly [ask: readonly [path: string, body?: unknown], status: number, ...says: string[]]

const c = await Controller.start(t)
const mac = (number: number) => `52:54:00:00:00:0${number}`

/** Everything that can be in something's way, made by one import. */
const state = {
  cluster: {},
  network: {
    alpha: { name: 'alpha', network: '10.1.0.0/24', gateway: '10.1.0.254' },
    beta: { name: 'beta', network: '10.2.0.0/24' },
    racks: { name: 'racks', network: '10.3.0.0/24' },
    power: { name: 'power', network: '10.4.0.0/24' },
    home: { name: 'home', network: '10.141.0.0/16' },
    full: { name: 'full', network: '10.9.0.0/30' }
  },
  osimage: { compute: { name: 'compute' }, login: { name: 'login' } },
  bmcsetup: { boards: { name: 'boards' }, blades: { name: 'blades' } },
  group: {
    compute: {
      name: 'compute',
      osimage: 'compute',
      osimagetag: 'stable',
      bmcsetupname: 'boards',
      interfaces: [{ interface: 'BOOTIF', network: 'alpha' }]
    },
    tight: { name: 'tight', interfaces: [{ interface: 'BOOTIF', network: 'full' }] }
  },
  node: {
    n1: {
      name: 'n1',
      group: 'compute',
      interfaces: [{ interface: 'BOOTIF', network: 'alpha', ipaddress: '10.1.0.1', macaddress: mac(1) }]
    },
    n2: {
      name: 'n2',
      osimage: 'login',
      bmcsetupname: 'blades',
      switch: 'sw',
      interfaces: [
        { interface: 'eth1', network: 'beta', ipaddress: '10.2.0.129', macaddress: mac(2), own: true }
      ]
    },
    t1: {
      name: 't1',
      group: 'tight',
      interfaces: [{ interface: 'BOOTIF', network: 'full', ipaddress: '10.9.0.1' }]
    },
    t2: {
      name: 't2',
      group: 'tight',
      interfaces: [{ interface: 'BOOTIF', network: 'full', ipaddress: '10.9.0.2' }]
    }
  },
  switch: { sw: { name: 'sw', network: 'racks', ipaddress: '10.3.0.130', macaddress: mac(3) } },
  otherdev: { pdu: { name: 'pdu', network: 'power', ipaddress: '10.4.0.131', macaddress: mac(4) } },
  osimagetag: { stable: { name: 'stable', osimage: 'compute' } },
  secrets: {}
}

/** Each is refused with its status, naming what it must, and changes no stored byte. */
function refused(what: string, refusals: readonly Refusal[]): void {
  t.test(what, async t => {
    const made = await c.post('/config/cluster/import', { config: state })
    t.equal(made.status, 201, made.text)
    const before = snapshot(c)
    const read = await exported(c)
    for (const [[path, body], status, ...says] of refusals) {
      const asked = `${path} ${body === undefined ? '' : JSON.stringify(body)}`
      const reply = body === undefined ? await c.get(path) : await c.post(path, body)
      t.equal(reply.status, status, `${asked}: ${reply.text}`)
      for (const said of says) saying(t, reply.body?.message, said, asked)
      t.same(snapshot(c), before, `${asked}: no stored byte is changed`)
    }
    t.equal((await exported(c)).text, read.text, 'nor is what is read')
  })
}

function saying(t: Test, message: unknown, said: string, asked: string): void {
  t.ok(String(message).includes(said), `${asked}: says ${said}, not ${message}`)
}

const remove = (object: string): readonly [string] => [`/config/${object}/_delete`]
const post = (object: string, body: object): readonly [string, object] => [`/config/${object}`, body]
const nic = (fields: object) => ({ interfaces: [{ interface: 'eth1', ...fields }] })

refused('what is in use is not deleted', [
  [remove('network/alpha'), 400, 'network alpha', 'in use by 2', 'group compute', 'node n1'],
  [remove('network/beta'), 400, 'network beta', 'in use by 1', 'node n2'],
  [remove('network/racks'), 400, 'network racks', 'in use by 1', 'switch sw'],
  [remove('network/power'), 400, 'network power', 'in use by 1', 'other device pdu'],
  [remove('osimage/compute'), 400, 'OS image compute', 'in use by 1', 'group compute'],
  [remove('osimage/login'), 400, 'OS image login', 'in use by 1', 'node n2'],
  [remove('osimage/compute/osimagetag/stable'), 400, 'tag stable of compute', 'in use by 1', 'group compute'],
  [remove('bmcsetup/boards'), 400, 'BMC set-up boards', 'in use by 1', 'group compute'],
  [remove('bmcsetup/blades'), 400, 'BMC set-up blades', 'in use by 1', 'node n2'],
  [remove('group/compute'), 400, 'group compute', 'in use by 1', 'node n1'],
  [remove('group/tight'), 400, 'group tight', 'in use by 2', 'node t1', 'node t2'],
  [remove('switch/sw'), 400, 'switch sw', 'in use by 1', 'node n2']
])

refused('a name that is taken is not given a second time', [
  [post('network/alpha', { newnetname: 'beta' }), 400, 'network beta exists already'],
  [post('osimage/compute', { newosimage: 'login' }), 400, 'OS image login exists already'],
  [post('bmcsetup/boards', { newbmcname: 'blades' }), 400, 'BMC set-up blades exists already'],
  [post('group/compute', { newgroupname: 'tight' }), 400, 'group tight exists already'],
  [post('node/n1', { newhostname: 'n2' }), 400, 'node n2 exists already'],
  [post('network/alpha/_clone', { newnetname: 'beta' }), 400, 'network beta exists already'],
  [post('bmcsetup/boards/_clone', { newbmcname: 'blades' }), 400, 'BMC set-up blades exists already'],
  [post('group/compute/_clone', { newgroupname: 'tight' }), 400, 'group tight exists already'],
  [post('node/n1/_clone', { newhostname: 'n2' }), 400, 'node n2 exists already'],
  [post('switch/sw/_clone', { newswitchname: 'sw' }), 400, 'switch sw exists already'],
  [post('otherdev/pdu/_clone', { newotherdevname: 'pdu' }), 400, 'other device pdu exists already'],
  [post('node/none', { newhostname: 'n9' }), 404, 'node none does not exist'],
  [post('group/none', { newgroupname: 'compute' }), 404, 'group none does not exist']
])

refused('a network is not changed so that an address in use is stranded', [
  [
    post('network/alpha', { network: '10.3.0.0/24', gateway: null }),
    400,
    'network alpha',
    'node n1 (BOOTIF)',
    '10.1.0.1'
  ],
  [post('network/beta', { network: '10.2.0.0/25' }), 400, 'network beta', 'node n2 (eth1)', '10.2.0.129'],
  [post('network/racks', { network: '10.3.0.0/25' }), 400, 'network racks', 'switch sw', '10.3.0.130'],
  [post('network/power', { network: '10.4.1.0/24' }), 400, 'network power', 'other device pdu', '10.4.0.131'],
  [
    post('network/power', { network: '10.4.0.128/30' }),
    400,
    'other device pdu',
    '10.4.0.131 is the broadcast address'
  ],
  [
    post('network/beta', { network: '10.2.0.129/32', gateway: '10.2.0.129' }),
    400,
    'network beta',
    'node n2 (eth1)'
  ],
  [post('network/alpha', { gateway: '10.1.0.1' }), 400, 'network alpha', 'gateway', 'node n1 (BOOTIF)'],
  [post('network/beta', { gateway: '10.2.0.129' }), 400, 'network beta', 'gateway', 'node n2 (eth1)'],
  [post('network/racks', { gateway: '10.3.0.130' }), 400, 'network racks', 'gateway', 'switch sw'],
  [post('network/power', { gateway: '10.4.0.131' }), 400, 'network power', 'gateway', 'other device pdu'],
  [
    post('network/over', { network: '10.0.0.0/8', gateway: '10.4.0.131' }),
    400,
    'network over',
    'other device pdu'
  ],
  [post('network/alpha', { network: '10.1.0.0/25' }), 400, 'network alpha', 'gateway', '10.1.0.254'],
  [
    post('network/home', { dhcp: true, dhcp_range_begin: '10.141.255.1', dhcp_range_end: '10.141.255.254' }),
    400,
    'network home',
    '10.141.255.254',
    'controller controller'
  ]
])

refused('a MAC has one owner, whatever kind of device it is', [
  [post('node/n9', { macaddr: mac(1) }), 400, 'node n9', mac(1), 'node n1 (BOOTIF)'],
  [post('node/n2', { macaddr: '5254.0000.0001' }), 400, 'node n2', mac(1), 'node n1 (BOOTIF)'],
  [post('node/n1', nic({ macaddress: mac(2) })), 400, 'node n1', mac(2), 'node n2 (eth1)'],
  [post('node/n1/interfaces', nic({ macaddress: mac(1) })), 400, 'node n1', mac(1), 'belongs to node n1'],
  [post('node/n1', nic({ macaddress: mac(3) })), 400, 'node n1', mac(3), 'switch sw'],
  [post('node/n9', { macaddr: mac(4) }), 400, 'node n9', mac(4), 'other device pdu'],
  [post('switch/sw', { macaddress: mac(1) }), 400, 'switch sw', mac(1), 'node n1 (BOOTIF)'],
  [post('switch/new', { macaddress: mac(4) }), 400, 'switch new', mac(4), 'other device pdu'],
  [post('otherdev/pdu', { macaddress: mac(3) }), 400, 'other device pdu', mac(3), 'switch sw'],
  [
    post('node/n9', { interfaces: ['a', 'b'].map(name => ({ interface: name, macaddress: mac(9) })) }),
    400,
    'node n9',
    mac(9),
    'node n9 (b)'
  ]
])

const devices: readonly (readonly [object: string, title: string, body: (fields: object) => object])[] = [
  ['node/n1', 'node n1: interface eth1', fields => nic(fields)],
  ['node/n9', 'node n9: interface eth1', fields => nic(fields)],
  ['switch/new', 'switch new', fields => fields],
  ['otherdev/new', 'other device new', fields => fields]
]
const addresses: readonly (readonly [network: string, ipaddress: string, ...says: string[]])[] = [
  ['beta', '10.2.0.129', 'node n2 (eth1)'],
  ['racks', '10.3.0.130', 'switch sw'],
  ['power', '10.4.0.131', 'other device pdu'],
  ['alpha', '10.1.0.254', 'gateway of network alpha'],
  ['alpha', '10.1.0.0', 'network address of network alpha'],
  ['alpha', '10.1.0.255', 'broadcast address of network alpha'],
  ['alpha', '10.2.0.1', 'lies outside network alpha'],
  ['home', '10.141.255.254', 'controller controller'],
  ['none', '10.2.0.1', 'network none does not exist']
]
for (const [object, title, body] of devices)
  refused(
    `an address that ${object} cannot have is refused with who has it`,
    addresses.map(
      ([network, ipaddress, ...says]): Refusal => [
        post(object, body({ network, ipaddress })),
        400,
        title,
        ...says
      ]
    )
  )

const forced = (network: string, ipaddress: string) => nic({ network, ipaddress, force: true })
refused('force takes an address from a node alone', [
  [post('node/n1', forced('racks', '10.3.0.130')), 400, 'node n1', '10.3.0.130', 'switch sw'],
  [post('node/n1', forced('power', '10.4.0.131')), 400, 'node n1', '10.4.0.131', 'other device pdu'],
  [post('node/n1', forced('home', '10.141.255.254')), 400, 'node n1', 'controller controller'],
  [post('node/n1', forced('alpha', '10.1.0.254')), 400, 'node n1', 'gateway of network alpha'],
  [post('node/n1', forced('alpha', '10.1.0.255')), 400, 'node n1', 'broadcast address of network alpha']
])

refused('a node that no address is left for is not made, moved or cloned', [
  [post('node/t3', { group: 'tight' }), 404, 'network full'],
  [post('node/n1', { group: 'tight' }), 404, 'network full'],
  [post('node/t1/_clone', { newhostname: 't3' }), 404, 'network full'],
  [post('group/compute', { interfaces: [{ interface: 'BOOTIF', network: 'full' }] }), 404, 'network full'],
  [post('group/compute/interfaces', nic({ network: 'full' })), 404, 'network full'],
  [post('node/n2', nic({ network: 'full' })), 404, 'network full']
])

const { alpha: _, ...withoutAlpha } = state.network
const { n2 } = state.node
refused('an import that breaks a rule says where, and changes nothing', [
  [
    ['/config/cluster/import', { network: withoutAlpha }],
    404,
    'config.group.compute',
    'config.node.n1',
    'network alpha'
  ],
  [
    ['/config/cluster/import', { group: {} }],
    404,
    'config.node.n1',
    'group compute',
    'config.node.t1',
    'group tight'
  ],
  [
    ['/config/cluster/import', { osimagetag: {} }],
    404,
    'config.group.compute',
    'no tag stable',
    'config.node.n1'
  ],
  [
    ['/config/cluster/import', { node: { n2, n3: { ...n2, name: 'n3' } } }],
    404,
    'config.node.n2',
    'config.node.n3',
    '52:54:00:00:00:02',
    'belongs to node n'
  ],
  [
    ['/config/cluster/import', { node: { n3: { group: 'compute' } } }],
    404,
    'config.node.n3',
    'interface BOOTIF'
  ],
  [
    ['/config/cluster/import', { otherdev: { x: { network: 'alpha', ipaddress: '10.1.0.254' } } }],
    404,
    'config.otherdev.x',
    'gateway'
  ],
  [
    ['/config/cluster/import', { node: { X: {} }, colour: {}, group: [] }],
    400,
    'config.node.X',
    'config.colour',
    'config.group'
  ],
  [['/config/cluster/import', { secrets: { node: { none: [] } } }], 404, 'config.secrets.node.none']
])
