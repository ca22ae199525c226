import fc from 'fast-check'
import { awkward } from '../../support/specimens.js'

/** One request of a random sequence: some are valid, some are not, whatever the state is by then. */
export type Operation =
  | { readonly kind: 'ask'; readonly method: 'GET' | 'POST'; readonly path: string; readonly body?: unknown }
  /** Import of the export that the sequence began with (0), or of the one after so many operations. */
  | {
      readonly kind: 'import'
      readonly of: number
      readonly sections: readonly string[]
      /** Taken out of the document first. */
      readonly without: readonly [section: string, name: string] | null
    }

export const types = ['network', 'osimage', 'bmcsetup', 'group', 'node', 'switch', 'otherdev'] as const
export type Type = (typeof types)[number]

export const newName: Readonly<Record<Type, string>> = {
  network: 'newnetname',
  osimage: 'newosimage',
  bmcsetup: 'newbmcname',
  group: 'newgroupname',
  node: 'newhostname',
  switch: 'newswitchname',
  otherdev: 'newotherdevname'
}

const sections = [...types, 'cluster', 'osimagetag', 'secrets']
const script = Buffer.from('#!/bin/sh\ntrue\n').toString('base64')

const { constantFrom, constant, boolean, integer, oneof, tuple, option, record } = fc
const often = <V>(weight: number, arbitrary: fc.Arbitrary<V>) => ({ weight, arbitrary })

/** The first ones, which are there in the beginning, more often than the others. */
const mostly = (first: string[], ...others: string[]) =>
  oneof(often(4, constantFrom(...first)), often(1, constantFrom(...others)))
const names: Readonly<Record<Type, fc.Arbitrary<string>>> = {
  network: mostly(['alpha', 'beta', 'constructor'], 'gamma'),
  osimage: mostly(['compute', 'constructor'], 'login'),
  bmcsetup: mostly(['boards'], 'toString', '1'),
  group: mostly(['compute', 'constructor'], 'login', 'Login_2'),
  node: mostly(['n1', 'n2', 'constructor'], 'n3', 'n10', '7'),
  switch: mostly(['rack1'], 'rack2', 'hasOwnProperty'),
  otherdev: mostly(['pdu'], 'valueOf')
}
const nic = mostly(['BOOTIF', 'BMC'], 'eth1', 'constructor')
const tag = mostly(['stable', 'tried', 'default'], '2024', 'constructor')
const secret = mostly(['munge', 'key'], 'constructor')
const anyMac = mostly(
  ['52:54:00:00:00:01', '52-54-00-00-00-02', '5254.0000.0003', '525400000004', '52:54:00:00:00:05'],
  '52:54'
)

/** Any code point but half a surrogate pair. For its unit `binary`, fc.string makes a table of a million. */
const character = integer({ min: 0, max: 0x10ffff - 0x800 }).map(n =>
  String.fromCodePoint(n < 0xd800 ? n : n + 0x800)
)

const text = oneof(
  often(2, constantFrom(awkward, '', ' ', '{{ 7 * 7 }}', '__proto__', "'; reboot #", 'a\r\n\r\nb', '*/ --')),
  often(1, fc.string({ unit: character, maxLength: 12 })),
  // Names that a prototype has: fc.string mixes them in where it knows its characters.
  often(1, constantFrom('constructor', 'toString', 'valueOf', '__defineGetter__', 'key'))
)

/**
 * Inside the networks of the beginning: network, broadcast, gateway and controller addresses, taken and free
 * ones.
 */
const address = oneof(
  often(
    4,
    tuple(constantFrom('10.1.0.', '10.2.0.'), integer({ min: 0, max: 17 })).map(parts => parts.join(''))
  ),
  often(1, constantFrom('10.2.0.205', '10.2.0.255', '10.141.255.254', '127.0.0.9', '10.1.0', '10.1.0.01'))
)
const prefix = constantFrom(
  '10.1.0.0/28',
  '10.1.0.0/29',
  '10.1.0.0/24',
  '10.1.0.2/31',
  '10.2.0.0/24',
  '10.2.0.0/16',
  '10.141.0.0/16',
  '127.0.0.0/8',
  '10.1.0.7/28',
  '0.0.0.0/0'
)

type Fields = readonly (readonly [string, fc.Arbitrary<unknown>])[]

const wrong = constantFrom<unknown>(7, true, [], {}, 'x y', null, '')
/** Some of the fields; now and then one of the wrong type, or one that does not exist. */
const some = (fields: Fields, most = 3): fc.Arbitrary<Record<string, unknown>> =>
  fc
    .uniqueArray(
      oneof(
        often(30, oneof(...fields.map(([key, value]) => tuple(constant(key), option(value, { freq: 6 }))))),
        often(1, tuple(constantFrom(...fields.map(([key]) => key), 'constructor', 'colour'), wrong))
      ),
      { selector: ([key]) => key, maxLength: most }
    )
    .map(pairs => Object.fromEntries(pairs))

const entry = (ofNode: boolean) =>
  record(
    {
      interface: nic,
      network: option(names.network, { freq: ofNode ? 8 : 20 }),
      options: text,
      ...(ofNode
        ? {
            ipaddress: option(address, { freq: 6 }),
            macaddress: option(anyMac, { freq: 6 }),
            force: boolean()
          }
        : {})
    },
    { requiredKeys: ofNode ? ['interface'] : ['interface', 'network'] }
  )
const entries = (ofNode: boolean) => fc.array(entry(ofNode), { minLength: 1, maxLength: 2 })

const inheritable: Fields = [
  ['domain', constantFrom('example.org', 'a b')],
  ['osimage', names.osimage],
  ['osimagetag', tag],
  ['bmcsetup', oneof(boolean(), names.bmcsetup)],
  ['setupbmc', boolean()],
  ['prescript', constantFrom(script, 'no base64!')],
  ['netboot', boolean()],
  ['bootmenu', boolean()],
  ['roles', constantFrom('compute, login', ',')],
  ['provision_interface', nic],
  ['provision_method', constantFrom('http', 'torrent')],
  ['unmanaged_bmc_users', constantFrom('delete', 'keep')],
  ['comment', text],
  ['_override', boolean()]
]
const device: Fields = [
  ['network', names.network],
  ['ipaddress', address],
  ['macaddress', anyMac],
  ['vendor', text],
  ['comment', text]
]
const fields: Readonly<Record<Type, Fields>> = {
  network: [
    ['network', prefix],
    ['gateway', address],
    ['ns_ip', address],
    ['dhcp', boolean()],
    ['dhcp_begin', address],
    ['dhcp_range_end', address],
    ['ntp_server', constantFrom('ntp.example.org', '10.1.0.1 10.1.0.2')],
    ['comment', text]
  ],
  osimage: [
    ['kernelfile', constantFrom('vmlinuz', 'disk', '../../etc/passwd')],
    ['tarball', constantFrom('compute.tar.gz', 'constructor')],
    ['kernver', text],
    ['kerneloptions', constantFrom('quiet console=ttyS0', 'a ; reboot', '${x}')],
    ['grab_exclude', fc.array(text, { maxLength: 2 })],
    ['path', constantFrom('/srv/a b', 'srv', '/srv/../etc')],
    ['comment', text]
  ],
  bmcsetup: [
    ['userid', integer({ min: -1, max: 64 })],
    ['mgmtchannel', integer({ min: 0, max: 16 })],
    ['password', text],
    ['username', text]
  ],
  group: [...inheritable, ['interfaces', entries(false)]],
  node: [
    ...inheritable,
    ['group', names.group],
    ['group', names.group],
    ['macaddr', anyMac],
    ['switch', oneof(names.switch, text)],
    ['switchport', oneof<fc.Arbitrary<unknown>[]>(integer(), constant('Gi1/0/3'))],
    ['service', boolean()],
    ['vendor', text],
    ['interfaces', entries(true)]
  ],
  switch: [...device, ['oid', constantFrom('.1.3.6.1', 'x')], ['read', text]],
  otherdev: device
}

const ask = (method: 'GET' | 'POST', path: string, body?: unknown): Operation => ({
  kind: 'ask',
  method,
  path,
  ...(body === undefined ? {} : { body })
})

const ofType = (make: (type: Type) => fc.Arbitrary<Operation>): fc.Arbitrary<Operation> =>
  oneof(often(3, make('node')), often(2, make('group')), ...types.map(make))

const object = (type: Type) => names[type].map(name => `/config/${type}/${name}`)
const save = ofType(type =>
  tuple(object(type), some(fields[type])).map(([path, body]) => ask('POST', path, body))
)
const copy = (suffix: string) =>
  ofType(type =>
    tuple(object(type), option(names[type], { freq: 12 }), some(fields[type], 1)).map(([path, to, rest]) =>
      ask('POST', path + suffix, { ...rest, ...(to === null ? {} : { [newName[type]]: to }) })
    )
  )
const remove = ofType(type => object(type).map(path => ask('GET', `${path}/_delete`)))

const onInterfaces = oneof(
  tuple(names.group, entries(false)).map(([name, interfaces]) =>
    ask('POST', `/config/group/${name}/interfaces`, { config: { group: { [name]: { interfaces } } } })
  ),
  tuple(names.node, entries(true)).map(([name, interfaces]) =>
    ask('POST', `/config/node/${name}/interfaces`, { interfaces })
  ),
  tuple(constantFrom('node', 'group'), names.group, names.node, nic).map(([type, group, node, name]) =>
    ask('GET', `/config/${type}/${type === 'node' ? node : group}/interfaces/${name}/_delete`)
  )
)

const move = tuple(names.node, option(names.group, { freq: 5 })).map(([name, group]) =>
  ask('POST', `/config/node/${name}`, { config: { node: { [name]: { group } } } })
)

/** A network that changes under the devices in it. */
const renumber = tuple(
  names.network,
  prefix,
  oneof(constant({}), constant({ gateway: null, dhcp: false }), record({ gateway: address }))
).map(([name, network, rest]) => ask('POST', `/config/network/${name}`, { network, ...rest }))

const onTags = oneof(
  tuple(
    oneof(
      names.group.map(name => `group/${name}`),
      names.node.map(name => `node/${name}`)
    ),
    names.osimage,
    tag
  ).map(([object, osimage, osimagetag]) => ask('POST', `/config/${object}`, { osimage, osimagetag })),
  tuple(names.osimage, tag).map(([image, tag]) => ask('POST', `/config/osimage/${image}/tag`, { tag })),
  tuple(names.osimage, tag).map(([image, tag]) =>
    ask('GET', `/config/osimage/${image}/osimagetag/${tag}/_delete`)
  )
)

const owner = oneof(
  names.node.map(name => `node/${name}`),
  names.group.map(name => `group/${name}`)
)
const onSecrets = oneof(
  tuple(
    owner,
    record(
      { name: secret, path: constantFrom('/etc/a', 'etc'), content: constant(script) },
      { requiredKeys: ['name'] }
    )
  ).map(([owner, entry]) => ask('POST', `/config/secrets/${owner}`, entry)),
  tuple(owner, secret, secret, constantFrom('', '/_clone')).map(([owner, name, newsecretname, suffix]) =>
    ask('POST', `/config/secrets/${owner}/${name}${suffix}`, { newsecretname })
  ),
  tuple(owner, secret).map(([owner, name]) => ask('GET', `/config/secrets/${owner}/${name}/_delete`))
)

const onCluster = some([
  ['ntp_server', constantFrom('ntp.example.org', '')],
  ['technical_contacts', text],
  ['provision_method', constantFrom('torrent', 'http', 'floppy')],
  ['provision_fallback', constantFrom('torrent', 'http')],
  ['name', constant('elsewhere')]
]).map(body => ask('POST', '/config/cluster', body))

const atConsole = oneof(
  tuple(names.node, anyMac).map(([name, mac]) => ask('GET', `/boot/manual/hostname/${name}/${mac}`)),
  tuple(names.group, anyMac).map(([name, mac]) => ask('GET', `/boot/manual/group/${name}/${mac}`)),
  anyMac.map(mac => ask('GET', `/boot/search/mac/${mac}`)),
  tuple(names.node, text).map(([name, state]) => ask('POST', `/monitor/node/${name}`, { state }))
)

const named = constantFrom(...types).chain(type => tuple(constant(type), names[type]))
const imports: fc.Arbitrary<Operation> = record({
  kind: constant('import' as const),
  of: integer({ min: 0, max: 9 }),
  sections: oneof(constant(sections), fc.subarray(sections, { minLength: 1, maxLength: 4 })),
  without: option<[Type, string], null>(named, { freq: 2 })
})

/** A request of any kind, to few enough names that they get in each other's way. */
export const operation: fc.Arbitrary<Operation> = oneof(
  often(10, save),
  often(3, copy('')),
  often(3, copy('/_clone')),
  often(3, remove),
  often(6, onInterfaces),
  often(4, move),
  often(2, renumber),
  often(3, onTags),
  often(2, onSecrets),
  often(1, onCluster),
  often(2, atConsole),
  often(2, imports)
)
