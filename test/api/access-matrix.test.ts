import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { ApiRoute } from '../../lib/api/context.js'
import { cheapHash, scriptToken } from '../support/callers.js'
import { proof } from '../support/proof.js'
import { bodyOf, complaints, existing, pathOf, populated, table } from '../support/routes.js'
import { stored } from '../support/state.js'
import { until } from '../support/until.js'

// Everybody who may ask × every route × every address and proxy header. What the answer has to be is written
// here by hand: nothing in this file looks at the access words of the code.

/** What a rule says of a cell: served, or refused with this code. */
type Verdict = 'served' | 400 | 401 | 403

/** Who asks: what the token stands for. */
type Who =
  /** No token. */
  | 'nobody'
  /** Something that is no valid token. */
  | 'invalid'
  | 'admin'
  /** A program with the role of an admin. */
  | 'adminProgram'
  | 'viewer'
  | 'operator'
  /** A viewer and an operator who are limited to the group of node n1, and an operator of another group. */
  | 'groupViewer'
  | 'groupOperator'
  | 'elsewhere'
  /** The token of node n1, which is the node in every path. */
  | 'own'
  /** That of node n2: another role, another image. */
  | 'other'

/** Where a request comes from, as the rules see it (rules 4.5). */
type Where =
  | 'loopback'
  /** An address of node n1. */
  | 'n1'
  /** An address in a configured network: another node's, a free one, one of the network of the BMCs. */
  | 'inside'
  | 'outside'
  /** A trusted proxy sends a header that holds no address. */
  | 'malformed'

type Rule = (who: Who, where: Where) => Verdict

type Verdicts = Readonly<Record<Who, Verdict>>
const byToken =
  (verdicts: Verdicts): Rule =>
  who =>
    verdicts[who]

const served: Rule = () => 'served'
/** Routes that users without a limit to groups may read. */
const read: Verdicts = {
  ...{
    nobody: 401,
    invalid: 401,
    admin: 'served',
    adminProgram: 'served',
    viewer: 'served',
    operator: 'served'
  },
  ...{ groupViewer: 403, groupOperator: 403, elsewhere: 403, own: 403, other: 403 }
}
/** Routes that limited users reach too: lists of their nodes, objects of one group, and public ones. */
const theirLists = { groupViewer: 'served', groupOperator: 'served', elsewhere: 'served' } as const
const ofTheirs = { groupViewer: 'served', groupOperator: 'served' } as const
const ordered: Verdicts = { ...read, viewer: 403 }

const users = byToken(read)
const lists = byToken({ ...read, ...theirLists })
const ofGroup = byToken({ ...read, ...ofTheirs })
const minimal = byToken({ ...read, ...theirLists, nobody: 'served' })
const minimalOfNode = byToken({ ...read, ...ofTheirs, nobody: 'served' })
const operators = byToken(ordered)
const operatorsOfGroup = byToken({ ...ordered, groupOperator: 'served' })
const operatorLists = byToken({ ...ordered, groupOperator: 'served', elsewhere: 'served' })
/** The request is the admin's. An operator may not cancel it, and a limited one does not see it: 404. */
const othersRequest = byToken({ ...ordered, ...theirLists, operator: 403, groupViewer: 403 })
const admins = byToken({ ...ordered, operator: 403 })
const tokens = byToken({ ...ordered, operator: 403, adminProgram: 403 })
const nodeReports = byToken({ ...ordered, groupOperator: 'served', own: 'served' })
const inventories = byToken({ ...ordered, operator: 403, own: 'served' })
const nodeReads = byToken({ ...read, own: 'served' })
const anyToken = byToken({ ...read, own: 'served', other: 'served' })
const consoles: Rule = (_, where) => (where === 'outside' ? 403 : 'served')
const nodesAddress: Rule = (who, where) => (where === 'n1' && who !== 'invalid' ? 'served' : 401)
const nodesOwn: Rule = (who, where) => (who === 'own' ? 'served' : nodesAddress(who, where))
const files: Rule = (who, where) => {
  if (where !== 'outside') return 'served'
  if (['nobody', 'invalid', 'groupViewer', 'groupOperator', 'elsewhere'].includes(who)) return 401
  // Node n2 installs another image.
  return who === 'other' ? 403 : 'served'
}

/** Every route stands here once (rules 4.5 to 4.12, 5.2, 5.3, 5.7). */
const rules: readonly (readonly [Rule, string])[] = [
  [
    served,
    `GET /
     GET /page/{pagefile}
     POST /token
     GET /auth
     POST /auth/oidc
     POST /auth/oidc/finish
     POST /auth/device
     POST /auth/device/finish
     GET /version
     GET /monitor/primary
     GET /openapi.json
     GET /boot
     GET /boot/short
     GET /boot/disk
     GET /boot/search/{macaddress}
     GET /boot/search/mac/{macaddress}
     GET /boot/library/{sha256}
     GET /boot/{file}
     GET /kickstart/install/{node}`
  ],
  [
    consoles,
    `GET /boot/manual/hostname/{hostname}
     GET /boot/manual/hostname/{hostname}/{macaddress}
     GET /boot/manual/group/{groupname}/{macaddress}`
  ],
  [
    nodesAddress,
    `GET /boot/install/{node}
     GET /boot/running/{node}/{tarball}
     GET /trust/{node}/nonce
     POST /trust/{node}/quote
     POST /trust/{node}/proof`
  ],
  [
    nodesOwn,
    `GET /boot/cloud-init/{node}/meta-data
     GET /boot/cloud-init/{node}/user-data
     GET /boot/cloud-init/{node}/vendor-data
     GET /boot/cloud-init/{node}/network-config`
  ],
  [files, 'GET /files/{tarball}'],
  [
    minimal,
    `GET /config/osimage
     GET /config/osimage/{osimage}
     GET /config/osimagetag
     GET /config/osimagetag/{osimage}
     GET /config/network/{network}/_list
     GET /config/network/{network}/_member
     GET /config/network/{network}/_nextfreeip
     GET /config/network/{network}/{ipaddress}
     GET /monitor/service/{service}
     GET /monitor/status`
  ],
  [
    nodeReports,
    `POST /config/node/{node}
     POST /monitor/node/{node}`
  ],
  [
    nodeReads,
    `GET /config/secrets/node/{node}
     GET /config/secrets/node/{node}/{secret}
     GET /boot/roles/{role}
     GET /boot/files/{node}`
  ],
  [
    tokens,
    `POST /config/token/{token}
     GET /config/token/{token}/_delete
     POST /config/token/{token}/_delete`
  ],
  [anyToken, 'GET /boot/scripts/{script}'],
  [
    minimalOfNode,
    `GET /monitor/node/{node}
     GET /monitor/node/{node}/_boots
     GET /monitor/node/{node}/_why`
  ],
  [inventories, 'POST /monitor/inventory/{node}'],
  [
    lists,
    `GET /config/node
     GET /config/group
     GET /monitor/node
     GET /monitor/events
     GET /monitor/overview
     GET /monitor/odd
     GET /config/trust
     GET /config/export/{format}
     GET /config/status/{request_id}
     GET /service/status/{request_id}
     GET /monitor/request
     GET /monitor/request/{request_id}
     GET /control/status/{request_id}`
  ],
  [
    ofGroup,
    `GET /config/node/{node}
     GET /config/node/{node}/interfaces
     GET /config/node/{node}/interfaces/{interface}
     GET /config/group/{group}
     GET /config/group/{group}/_list
     GET /config/group/{group}/_member
     GET /config/group/{group}/interfaces
     GET /config/group/{group}/interfaces/{interface}
     GET /control/action/power/{node}/_status
     GET /control/action/sel/{node}/_list`
  ],
  [
    operatorsOfGroup,
    `GET /control/console/{node}
     POST /control/console/{node}
     GET /monitor/console/{node}
     GET /control/action/power/{node}/_on
     GET /control/action/power/{node}/_off
     GET /control/action/power/{node}/_cycle
     GET /control/action/power/{node}/_reset
     GET /control/action/power/{node}/_soft
     GET /control/action/power/{node}/_boot
     GET /control/action/chassis/{node}/_identify
     GET /control/action/chassis/{node}/_noidentify
     GET /control/action/chassis/{node}/_netboot
     GET /control/action/chassis/{node}/_diskboot
     GET /control/action/sel/{node}/_clear`
  ],
  // The set in the body names a node that does not exist.
  [
    operators,
    `POST /control/action/power/_on
     POST /control/action/power/_off
     POST /control/action/power/_cycle
     POST /control/action/power/_reset
     POST /control/action/power/_soft
     POST /control/action/power/_boot
     POST /control/action/chassis/_identify
     POST /control/action/chassis/_noidentify
     POST /control/action/chassis/_netboot
     POST /control/action/chassis/_diskboot
     POST /control/action/sel/_clear`
  ],
  [othersRequest, 'GET /config/status/{request_id}/_cancel'],
  [operatorLists, `POST /config/node/_set`],
  [
    users,
    `GET /config/cluster
     GET /config/cluster/export
     GET /metrics
     GET /monitor/unknown
     GET /config/network
     GET /config/network/{network}
     GET /config/dns/{network}
     GET /config/disklayout
     GET /config/disklayout/{disklayout}
     GET /config/disklayout/{disklayout}/_list
     GET /config/disklayout/{disklayout}/_member
     GET /config/bmcsetup
     GET /config/bmcsetup/{bmcsetup}
     GET /config/bmcsetup/{bmcsetup}/_list
     GET /config/bmcsetup/{bmcsetup}/_member
     GET /config/switch
     GET /config/switch/{switch}
     GET /config/otherdev
     GET /config/file
     GET /config/file/{filename}
     GET /config/file/{filename}/_list
     GET /config/file/{filename}/_member
     GET /config/otherdev/{otherdev}
     GET /config/secrets
     GET /config/secrets/group/{group}
     GET /config/secrets/group/{group}/{secret}
     GET /config/osimage/{osimage}/_list
     GET /config/osimage/{osimage}/_member
     GET /config/osimage/{osimage}/_running
     GET /config/osimagetag/{osimage}/_list
     GET /config/osimagetag/{osimage}/_member
     GET /service/dhcp/status
     GET /service/dns/status
     GET /service/tftp/status
     GET /service/consoles/status
     POST /control/action/power/_status
     POST /control/action/sel/_list`
  ],
  [
    admins,
    `GET /config/token
     GET /config/token/{token}
     POST /config/cluster
     POST /config/node
     POST /config/node/_delete
     POST /config/cluster/import
     GET /config/cluster/{controller}/_delete
     POST /config/cluster/{controller}/_delete
     POST /config/network/{network}
     GET /config/network/{network}/_delete
     POST /config/network/{network}/_delete
     POST /config/network/{network}/_clone
     POST /config/network/{network}/_renumber
     POST /config/dns/{network}
     GET /config/dns/{network}/{host}/_delete
     POST /config/dns/{network}/{host}/_delete
     POST /config/group/{group}
     GET /config/group/{group}/_delete
     POST /config/group/{group}/_delete
     POST /config/group/{group}/_clone
     POST /config/group/{group}/interfaces
     GET /config/group/{group}/interfaces/{interface}/_delete
     POST /config/group/{group}/interfaces/{interface}/_delete
     POST /config/group/{group}/_ospush
     GET /config/node/{node}/_delete
     POST /config/node/{node}/_delete
     POST /config/node/{node}/_clone
     POST /config/node/{node}/interfaces
     GET /config/node/{node}/interfaces/{interface}/_delete
     POST /config/node/{node}/interfaces/{interface}/_delete
     GET /config/node/{node}/_render/boot
     GET /config/node/{node}/_render/install
     GET /config/node/{node}/_render/files
     GET /config/node/{node}/_render/kickstart
     GET /config/node/{node}/_render/partscript
     GET /config/node/{node}/_release
     GET /config/node/{node}/_trust
     POST /config/node/{node}/_trust
     POST /config/node/{node}/_distrust
     GET /monitor/audit
     GET /monitor/inventory
     GET /monitor/inventory/{node}
     POST /monitor/unknown/_scan
     GET /config/cluster/snapshot
     GET /config/node/{node}/_seen
     POST /config/node/{node}/_osgrab
     POST /config/node/{node}/_ospush
     POST /config/node/{node}/_rehearse
     POST /config/disklayout/{disklayout}
     GET /config/disklayout/{disklayout}/_delete
     POST /config/disklayout/{disklayout}/_delete
     POST /config/disklayout/{disklayout}/_clone
     POST /config/bmcsetup/{bmcsetup}
     GET /config/bmcsetup/{bmcsetup}/_delete
     POST /config/bmcsetup/{bmcsetup}/_delete
     POST /config/bmcsetup/{bmcsetup}/_clone
     POST /config/switch/{switch}
     GET /config/switch/{switch}/_delete
     POST /config/switch/{switch}/_delete
     POST /config/switch/{switch}/_clone
     POST /config/file/{filename}
     GET /config/file/{filename}/_delete
     POST /config/file/{filename}/_delete
     POST /config/file/{filename}/_clone
     POST /config/otherdev/{otherdev}
     GET /config/otherdev/{otherdev}/_delete
     POST /config/otherdev/{otherdev}/_delete
     POST /config/otherdev/{otherdev}/_clone
     POST /config/secrets/node/{node}
     POST /config/secrets/node/{node}/{secret}
     POST /config/secrets/node/{node}/{secret}/_clone
     GET /config/secrets/node/{node}/{secret}/_delete
     POST /config/secrets/node/{node}/{secret}/_delete
     POST /config/secrets/group/{group}
     POST /config/secrets/group/{group}/{secret}
     POST /config/secrets/group/{group}/{secret}/_clone
     GET /config/secrets/group/{group}/{secret}/_delete
     POST /config/secrets/group/{group}/{secret}/_delete
     POST /config/osimage
     POST /config/osimage/{osimage}
     GET /config/osimage/{osimage}/_delete
     POST /config/osimage/{osimage}/_delete
     GET /config/osimage/{osimage}/_pack
     POST /config/osimage/{osimage}/kernel
     POST /config/osimage/{osimage}/_import
     POST /config/osimage/{osimage}/_update
     POST /config/osimage/{osimage}/_push
     POST /config/osimage/{osimage}/_clone
     POST /config/osimage/{osimage}/tag
     GET /config/osimage/{osimage}/osimagetag/{tagname}/_delete
     POST /config/osimage/{osimage}/osimagetag/{tagname}/_delete
     GET /service/dhcp/start
     GET /service/dhcp/stop
     GET /service/dhcp/restart
     GET /service/dhcp/reload
     GET /config/dhcp/_preview
     GET /service/dns/start
     GET /service/dns/stop
     GET /service/dns/restart
     GET /service/dns/reload
     GET /config/dns/_preview
     GET /service/tftp/start
     GET /service/tftp/stop
     GET /service/tftp/restart
     GET /service/tftp/reload
     GET /config/tftp/_preview
     GET /service/consoles/start
     GET /service/consoles/stop
     GET /service/consoles/restart
     GET /service/consoles/reload
     GET /config/consoles/_preview`
  ]
]

const nameOf = ({ method, path }: ApiRoute) => `${method} ${path}`
const written = rules.flatMap(([rule, names]) =>
  names.split('\n').map((name): [string, Rule] => [name.trim(), rule])
)
const ruleOf = new Map(written)

/** Peer, X-Forwarded-For, and where that is. 10.9.9.9 and 127.0.0.5 are trusted proxies. */
const paths: readonly (readonly [peer: string, forwardedFor: string | undefined, where: Where])[] = [
  ['127.0.0.1', undefined, 'loopback'],
  ['127.8.8.8', undefined, 'loopback'],
  ['::1', undefined, 'loopback'],
  ['::ffff:127.0.0.1', undefined, 'loopback'],
  ['10.141.0.1', undefined, 'n1'],
  ['::ffff:10.141.0.1', undefined, 'n1'],
  ['10.141.0.2', undefined, 'inside'],
  ['10.141.77.7', undefined, 'inside'],
  ['10.142.0.77', undefined, 'inside'],
  // The BMC of node n1, which is another machine.
  ['10.142.0.1', undefined, 'inside'],
  ['192.0.2.9', undefined, 'outside'],
  ['2001:db8::9', undefined, 'outside'],
  ['fe80::1%eth0', undefined, 'outside'],
  ['10.9.9.9', undefined, 'outside'],
  // Nobody vouches for the header: it gives no rights, and takes those of loopback.
  ['192.0.2.9', '127.0.0.1', 'outside'],
  ['192.0.2.9', '10.141.0.1', 'outside'],
  ['192.0.2.9', '10.141.0.1, 10.9.9.9', 'outside'],
  ['192.0.2.9', 'rubbish', 'outside'],
  ['10.141.0.2', '10.141.0.1', 'inside'],
  ['10.141.0.1', '192.0.2.9', 'n1'],
  ['127.0.0.1', '127.0.0.1', 'outside'],
  ['127.0.0.1', '10.141.0.1', 'outside'],
  ['::1', '::1', 'outside'],
  // From a trusted proxy: the right-most address that is no trusted proxy's.
  ['10.9.9.9', '10.141.0.1', 'n1'],
  ['10.9.9.9', '::ffff:10.141.0.1', 'n1'],
  ['10.9.9.9', '10.141.0.1:4711', 'n1'],
  ['127.0.0.5', '10.141.0.1', 'n1'],
  ['10.9.9.9', '10.142.0.77', 'inside'],
  ['10.9.9.9', '192.0.2.9', 'outside'],
  ['10.9.9.9', '10.141.0.1, 192.0.2.9', 'outside'],
  ['10.9.9.9', '127.0.0.1, 192.0.2.9', 'outside'],
  ['10.9.9.9', 'rubbish, 10.141.0.1', 'n1'],
  ['10.9.9.9', '192.0.2.9, 10.141.0.1, 127.0.0.5', 'n1'],
  // The loopback of another machine.
  ['10.9.9.9', '127.0.0.1', 'outside'],
  ['10.9.9.9', '::1', 'outside'],
  ['127.0.0.5', '127.0.0.1', 'loopback'],
  ['127.0.0.5', '127.0.0.1, 10.9.9.9', 'outside'],
  ['10.9.9.9', '', 'malformed'],
  ['10.9.9.9', 'unknown', 'malformed'],
  ['10.9.9.9', '10.141.0.1,', 'malformed'],
  ['10.9.9.9', '0x0a.141.0.1', 'malformed'],
  ['10.9.9.9', '10.141.1', 'malformed']
]

/** The daemon, with what a rule could be broken by. */
const c = await populated(t, 'http.trusted_proxies=10.9.9.9, 127.0.0.5')
const firstPassword = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8').trim()
await c.post('/config/network/bmc', { network: '10.142.0.0/16' })
await c.post('/config/node/n1', {
  interfaces: [{ interface: 'BMC', network: 'bmc', ipaddress: '10.142.0.1' }]
})
c.file('other.tar.gz')
await c.post('/config/osimage/other', {
  kernelfile: 'vmlinuz',
  initrdfile: 'initrd.img',
  imagefile: 'other.tar.gz'
})
await c.post('/config/node/n2', { group: 'compute', osimage: 'other' })
await c.post('/config/node/n3', { group: 'compute' })
await c.post('/config/node/n4', { group: 'compute' })
await c.post('/config/group/gpu', {})
// A node that has no BMC, for orders that are served.
await c.post('/config/node/bare', { group: 'compute', interfaces: [] })
const [deleted, renamed, former] = await Promise.all(['n3', 'n4', 'n1'].map(node => scriptToken(c, node)))
await c.get('/config/node/n3/_delete')
await c.post('/config/node/n4', { newhostname: 'n5' })
await c.post('/config/node/n1', { newhostname: 'n6' })
await c.post('/config/node/n6', { newhostname: 'n1' })

const hash = cheapHash('correct horse')
const line = (user: string, role: string) => `users.${user}=${role} ${hash}`
const grants = {
  operator: 'operator',
  groupViewer: 'viewer:compute,none',
  groupOperator: 'operator:compute',
  elsewhere: 'operator:gpu,none'
}
const { overrides } = c
Object.assign(c, {
  overrides: [
    ...overrides,
    ...['root', 'gone', 'fallen'].map(user => line(user, 'admin')),
    line('alice', 'viewer'),
    ...Object.entries(grants).map(([user, grant]) => line(user, grant))
  ]
})
await c.restart()
const [admin, gone, fallen, viewer] = await Promise.all(
  ['root', 'gone', 'fallen', 'alice'].map(user => c.login(user, 'correct horse'))
)
const granted = new Map<string, string>()
for (const user of Object.keys(grants)) granted.set(user, await c.login(user, 'correct horse'))
const firstToken = c.token
Object.assign(c, {
  overrides: [
    ...overrides,
    line('root', 'admin'),
    line('fallen', 'viewer'),
    line('alice', 'viewer'),
    ...Object.entries(grants).map(([user, grant]) => line(user, grant))
  ]
})
await c.restart()
c.token = admin ?? ''
const [own, other] = await Promise.all(['n1', 'n2'].map(node => scriptToken(c, node)))

const programs: [string, Who, string][] = []
for (const [name, who, role] of [
  ['all', 'adminProgram', 'admin'],
  ['scraper', 'viewer', 'viewer'],
  ['operating', 'operator', 'operator'],
  ['limited', 'groupOperator', 'operator:compute'],
  ['past', 'invalid', 'admin']
] as const)
  programs.push([name, who, (await c.post(`/config/token/${name}`, { role })).body.token])
// The first use of each is stored behind its answer.
for (const [, , token] of programs) await c.get('/config/group', { token })
await until(async () => {
  const files = Object.entries(await stored(c)).filter(([path]) => path.startsWith('tokens/'))
  return files.length === programs.length && files.every(([, text]) => text.includes('"used"'))
})
const revoked = programs.pop()?.[2] ?? ''
await c.get('/config/token/past/_delete')

const key = readFileSync(join(c.directory, 'state', 'token.key'))
const encode = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')

/** A token with other claims or another header, signed with a key. */
function signed(token = '', changes: object = {}, by: Buffer = key, header?: object): string {
  const [first = '', payload = ''] = token.split('.')
  const claims = { ...JSON.parse(Buffer.from(payload, 'base64url').toString()), ...changes }
  const text = `${header ? encode(header) : first}.${encode(claims)}`
  return `${text}.${createHmac('sha256', by).update(text).digest('base64url')}`
}
const now = Date.now() / 1000
const parts = (admin ?? '').split('.')

/** Who asks, and the headers and the query that they send. */
const callers: readonly (readonly [
  what: string,
  who: Who,
  token: string | null,
  headers?: object,
  query?: string
])[] = [
  ['nobody', 'nobody', null],
  ['an empty token', 'nobody', ''],
  ["the admin's token as a Bearer token", 'admin', null, { Authorization: `Bearer ${admin}` }],
  ["the viewer's too", 'viewer', null, { Authorization: `bearer ${viewer}` }],
  ['two tokens in two headers', 'invalid', viewer ?? '', { Authorization: `Bearer ${admin}` }],
  ['a node with a Bearer token', 'invalid', null, { Authorization: `Bearer ${own}` }],
  ...programs.map(([name, who, token]): [string, Who, string] => [`the program ${name}`, who, token]),
  ['a program whose token is revoked', 'invalid', revoked],
  [
    "the admin's password in another header",
    'nobody',
    null,
    { Authorization: `Basic ${btoa('root:correct horse')}` }
  ],
  ["the admin's token in a cookie", 'nobody', null, { Cookie: `x-access-tokens=${admin}` }],
  ["the admin's token in the query", 'nobody', null, {}, `?token=${admin}&x-access-tokens=${admin}`],
  ['the admin', 'admin', admin ?? ''],
  ['the viewer', 'viewer', viewer ?? ''],
  ['who was admin once', 'viewer', fallen ?? ''],
  ...Object.keys(grants).map((user): [string, Who, string] => [user, user as Who, granted.get(user) ?? '']),
  ['node n1', 'own', own ?? ''],
  ['node n2', 'other', other ?? ''],
  ['who is no user any more', 'invalid', gone ?? ''],
  ['admin, now that the ini names users', 'invalid', firstToken],
  ['a node that was deleted', 'invalid', deleted ?? ''],
  ['a node that was renamed', 'invalid', renamed ?? ''],
  ['node n1 before it was renamed and back', 'invalid', former ?? ''],
  ['an admin whose token has expired', 'invalid', signed(admin, { iat: now - 7200, exp: now - 3600 })],
  ['a node whose token has expired', 'invalid', signed(own, { iat: now - 7200, exp: now - 1 })],
  ['a token from the future', 'invalid', signed(admin, { iat: now + 3600, exp: now + 7200 })],
  ['a token of another key', 'invalid', signed(admin, {}, Buffer.alloc(32))],
  ['a token of no key', 'invalid', signed(admin, {}, Buffer.alloc(0))],
  ['a token without a signature', 'invalid', `${encode({ alg: 'none', typ: 'JWT' })}.${parts[1]}.`],
  ['a token of another algorithm', 'invalid', signed(admin, {}, key, { alg: 'HS512', typ: 'JWT' })],
  [
    'a viewer who writes admin',
    'invalid',
    `${signed(viewer, { role: 'admin' }).split('.', 2).join('.')}.${viewer?.split('.')[2]}`
  ],
  ['a token with one letter more', 'invalid', `${admin}A`],
  ['two tokens', 'invalid', `${viewer}, ${admin}`],
  ['garbage', 'invalid', 'garbage'],
  ['the name of the admin', 'invalid', 'root'],
  ['the password of the admin', 'invalid', 'correct horse'],
  ['the hash in the ini', 'invalid', hash],
  ['the first password', 'invalid', firstPassword],
  ['the password of the BMCs', 'invalid', 'calvin'],
  ['the community of a switch', 'invalid', 'community'],
  ['the content of a secret', 'invalid', 'aGVsbG8='],
  ['the id of a request', 'invalid', existing.request_id ?? '']
]

/**
 * Returns a path that a served request may name without a change: where the route changes something, its
 * objects do not exist.
 */
function pathFor(route: ApiRoute, isServed: boolean): string {
  if (!isServed || !/_(delete|pack|clone)$|^\/control\/action/.test(route.path)) return pathOf(route)
  const node = route.path.startsWith('/control/') ? 'bare' : 'none'
  return pathOf(route, { ...Object.fromEntries(types.map(type => [type, 'none'])), node })
}
const types = [
  'group',
  'node',
  'network',
  'osimage',
  'bmcsetup',
  'switch',
  'otherdev',
  'filename',
  'disklayout'
]

interface Cell {
  readonly route: ApiRoute
  readonly caller: (typeof callers)[number]
  readonly from: (typeof paths)[number]
  readonly verdict: Verdict
}

/** One of each who; users are alike where the address decides. */
const kinds = callers.filter(
  ([, who], i) => who !== 'viewer' && callers.findIndex(caller => caller[1] === who) === i
)

/**
 * All cells, or so many that every route meets every caller and every address. Where the address decides, it
 * meets one caller of each kind.
 */
function cells(): Cell[] {
  const most = Math.max(callers.length, paths.length)
  const crossed = (these: typeof callers) =>
    paths.flatMap(from => these.map((caller): Pair => [caller, from]))
  const some = (first: number) =>
    Array.from({ length: most }, (_, i): Pair => {
      const [caller, from] = [callers[(i + first) % callers.length], paths[i % paths.length]]
      return [caller as Pair[0], from as Pair[1]]
    })
  return table.flatMap((route, r) => {
    const rule = ruleOf.get(nameOf(route))
    if (rule === undefined) return []
    const few = rule.length < 2 ? some(r) : [...some(r), ...crossed(kinds)]
    return (process.env.SVCD_LONG ? crossed(callers) : few).map(([caller, from]) => {
      // Without a good address there is no request to speak of.
      const verdict = from[2] === 'malformed' ? 400 : rule(caller[1], from[2])
      return { route, caller, from, verdict }
    })
  })
}

type Pair = readonly [caller: (typeof callers)[number], from: (typeof paths)[number]]

async function outcome({ route, caller, from, verdict }: Cell) {
  const [, , token, headers = {}, query = ''] = caller
  const [source, forwardedFor] = from
  const ask = {
    token,
    source,
    headers: { ...headers, ...(forwardedFor === undefined ? {} : { 'X-Forwarded-For': forwardedFor }) }
  }
  const path = pathFor(route, verdict === 'served') + query
  const login = { username: 'root', password: 'correct horse' }
  const body = route.path === '/token' ? login : bodyOf(route)
  const { status, text } = await (route.method === 'GET' ? c.get(path, ask) : c.post(path, body, ask))
  const found =
    ![401, 403].includes(status) && (status < 500 || isMissingServer(route, text)) ? 'served' : status
  return { found: verdict === 400 ? status : found, status, text }
}

/** What this controller has no server for. */
const isMissingServer = ({ path }: ApiRoute, text: string) =>
  /\/(dhcp|dns)\//.test(path) && text.includes('none')

t.test('every route has its rule, and every rule its route', async t => {
  t.same(written.map(([name]) => name).sort(), table.map(nameOf).sort())
})

// rules 4.5, 4.6, 4.8, 4.9, 5.2, 5.3, 5.7
t.test('who may do what, from where', async t => {
  const all = cells()
  const before = await stored(c)
  const wrong: string[] = []
  let unmeant5xx = 0
  for (const refusing of [true, false]) {
    for (const cell of all) {
      if (refusing !== (cell.verdict !== 'served')) continue
      const { found, status, text } = await outcome(cell)
      if (status === 500) unmeant5xx++
      const isPlain = found === 'served' || Object.keys(JSON.parse(text)).join() === 'message,code'
      if (found === cell.verdict && isPlain) continue
      const [peer, forwardedFor] = cell.from
      const from = forwardedFor === undefined ? peer : `${peer} with X-Forwarded-For "${forwardedFor}"`
      wrong.push(
        `${nameOf(cell.route)} by ${cell.caller[0]} from ${from}: ${status}, not ${cell.verdict}: ${text.slice(0, 120)}`
      )
    }
    if (refusing) t.same(await stored(c), before, 'who is refused changes nothing')
  }
  proof('access matrix', { tried: all.length, unmeant5xx, note: `${wrong.length} wrong answers` })
  t.same(wrong.slice(0, 20), [], `${all.length} cells, ${wrong.length} wrong`)
  // A node that asks from outside its network is warned of, once (rules 4.21).
  t.same(
    complaints(c).filter(entry => !entry.includes('asks for its boot script from')),
    []
  )
})
