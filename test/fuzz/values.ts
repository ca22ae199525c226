import type { JsonValue } from '../../lib/base/json.js'
import type { Field } from '../../lib/model/field.js'
import type { Random } from './random.js'

/**
 * Begins a line that a value has added to a rendered file, if it ever does: every value that could add one
 * ends in it.
 */
export const added = 'ADDED'

const breaks = ['\n', '\r', '\r\n', '\u2028', '\u0085', '\v', '\f']

/** Texts of all kinds: some are good for one field, most are good for none but those of free text. */
const texts: readonly string[] = [
  ...['', ' ', 'x', '0', 'true', 'null', '-', '.', '..', '/', '__proto__', 'constructor', 'toString'],
  ...['cluster', 'compute', 'n1', 'boards', 'sw1', 'pdu', 'v1', 'default', 'BOOTIF', 'BMC', 'eth0', 'N-1_.x'],
  ...['10.1.0.9', '10.2.0.30', '10.1.0.255', '0.0.0.0', '255.255.255.255', '127.0.0.1', '10.1.0.01', '::1'],
  ...['10.1.0.0/24', '10.2.0.0/16', '0.0.0.0/0', '10.9.8.0/30', '10.1.0.1/32', '10.1.0.3/24', '10.1.0.0/33'],
  ...['10.9.0.0/16 via 10.141.0.9', '10.141.0.8,10.141.0.9'],
  ...[
    '52:54:00:00:00:09',
    '5254.0000.000a',
    '52-54-00-00-00-0B',
    'ff:ff:ff:ff:ff:ff',
    '52:54',
    '525400000010'
  ],
  ...['example.org', 'a.b.c-d.e', `${'x'.repeat(63)}.org`, 'ntp1,ntp2 ntp3', 'x.', '-x.y', 'xn--nxasmq6b'],
  ...['torrent', 'http', 'disable', 'delete', 'redhat', 'debian', 'web', 'web, x', '.1.3.6.1', '1.3'],
  ...[
    '/a/b c',
    '/',
    '/../x',
    '/etc/"x"',
    '/etc/$(id)',
    '/srv/é',
    'vmlinuz',
    'a~b+c.img',
    'short',
    'image.tar.gz'
  ],
  ...[
    'quiet',
    'console=ttyS0,115200n8 "a b"',
    'a=$x `y` \\',
    'x # y',
    '${x}',
    '; reboot',
    "it's",
    '%end',
    '%%'
  ],
  ...['aGVsbG8=', 'aGVs\nbG8=', 'aGVsbG8', '====', Buffer.from(`echo\n${added}\n%end\n`).toString('base64')],
  ...[
    '********',
    '{{ 7 * 7 }}',
    '{% raw %}',
    '{# x',
    '$(touch /x)',
    '`id`',
    '"; id; "',
    "'; id; '",
    '\\',
    '\\\\"'
  ],
  ...[
    'ü🙂é',
    '\u0007\u001b[31m',
    '\ud83d',
    '\0',
    '\u00ad\u200b\u202e',
    '<b>&amp;',
    'a\tb',
    '*/',
    '//',
    '--',
    '#'
  ],
  ...[
    'vlan=7',
    'mtu 9000;bond',
    'uplink',
    '1,2 , 3',
    'x'.repeat(64),
    'x'.repeat(256),
    'y'.repeat(1025),
    'ü'.repeat(200)
  ],
  ...breaks.flatMap(line => [
    `x${line}${added} {}`,
    `x"${line}${added};`,
    `x'${line}${added}`,
    `}${line}${added}`
  ]),
  ...['\nEOF\n', '\nSVC_END\n', '\n%end\n', '\n}\n', '\n:failed\n'].map(text => `x${text}${added}`)
]

const others: readonly JsonValue[] = [
  ...[null, true, false, 0, 1, 2, 5, 15, 63, 64, -1, 1.5, 1e300, 2 ** 53, -0, 4294967296],
  ...[
    [],
    {},
    [[]],
    [null],
    ['x'],
    ['/a', '/b'],
    ['/proc/*', `x\n${added}`],
    { x: 1 },
    [{ interface: 'BOOTIF' }]
  ],
  ...['cluster', 'bmc', 'none'].map(network => [{ interface: 'eth1', network, options: `x\n${added}` }]),
  [{ interface: 'BOOTIF', ipaddress: '10.1.0.77', force: true }],
  [{ interface: `x\n${added}`, network: 'cluster' }],
  Array.from({ length: 300 }, (_, i) => ({ interface: `eth${i}`, network: 'bmc' }))
]

/** Every value there is to try. */
export const pool: readonly JsonValue[] = [...texts, ...others]

const good = new Map<Field, readonly JsonValue[]>()

/** Those that the type of a field takes. */
export function goodFor(field: Field): readonly JsonValue[] {
  const known = good.get(field) ?? pool.filter(value => takes(field, value))
  good.set(field, known)
  return known
}

function takes(field: Field, value: JsonValue): boolean {
  if (value === null) return true
  try {
    field.type.read(value)
    return typeof value !== 'string' || field.limit?.(value) === undefined
  } catch {
    return false
  }
}

/** A value for a field: one that its type takes, in `share` of the cases. */
export function valueFor(random: Random, field: Field, share: number): JsonValue {
  return random.is(share) ? random.pick(goodFor(field)) : random.pick(pool)
}

/** Some fields of a table with a value each. */
export function fieldsOf(random: Random, table: readonly Field[], share: number): Record<string, JsonValue> {
  const fields = table.filter(() => random.is(0.15))
  return Object.fromEntries(
    fields.map(field => [
      random.pick([field.name, ...(field.otherSpellings ?? [])]),
      valueFor(random, field, share)
    ])
  )
}
