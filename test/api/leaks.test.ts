import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { makeTree } from '../image/small-tree.js'
import { cheapHash, scriptToken } from '../support/callers.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { bodyOf, pathOf, populated, table } from '../support/routes.js'
import { scratch } from '../support/scratch.js'
import { rawFiles } from '../support/stored-texts.js'

// Everything secret that a controller is given or makes, looked for wherever it could have come to: the log,
// the audit logs, answers, refusals, previews, records of requests, state files, files of servers, and the
// argument lists and environments of all programs that are started (rules 1.11, 4.12, 5.1, 5.2, 5.5, 11.7).

const long = process.env.SVCD_LONG !== undefined

requireRoot()
requirePrograms('kea-dhcp4', 'named-checkconf', 'ssh', 'rsync')

/** Characters that each way of writing treats differently, behind so many that stay as they are. */
const word = (awkward = '"\'\\ü &') =>
  `${randomBytes(9).toString('base64url').replace(/[-_]/g, 'x')}${awkward}`

const secrets: Record<string, string | Buffer> = {
  'the password of BMCs': word('"\\ü &'),
  'another password of BMCs': word(),
  'a community for reading': word('-%&'),
  'a community for writing': word('.#+'),
  'a secret of a group': word('\n\t"\'\\ü &'),
  'a secret of a node': word('\n'),
  "the admin's password": word(),
  "the viewer's password": word(),
  'the hash of root on nodes': `$6$abcdefgh$${randomBytes(64).toString('hex').slice(0, 86)}`,
  'the secret of the seeder': word(''),
  'a password that is wrong': word()
}

const texts = secrets as Readonly<Record<string, string>>
const base64 = (text = '') => Buffer.from(text).toString('base64')

// What programs are started with: each goes through setpriv, and rsync starts ssh by itself.
const programs = scratch(t)
const started = join(programs, 'started')
mkdirSync(join(programs, 'bin'))
for (const name of ['setpriv', 'ssh', 'ipmitool']) {
  const file = join(programs, 'bin', name)
  // ipmitool alone is given a password, in its environment (rules 12.3). It is not run: the BMC is on no
  // loopback.
  const known = `case "$*" in *ipmitool*|*lanplus*) exec grep -zv ^IPMI_PASSWORD= ;; *) exec cat ;; esac`
  const run = name === 'ipmitool' ? 'exit 1' : `exec /usr/bin/${name} "$@"`
  writeFileSync(
    file,
    `#!/bin/sh\ncat /proc/$$/cmdline >>${started}\n(${known}) </proc/$$/environ >>${started}\n${run}\n`
  )
  chmodSync(file, 0o755)
}
process.env.PATH = `${join(programs, 'bin')}:${process.env.PATH}`

const servers = scratch(t)
const c = await populated(
  t,
  `kickstart.rootpw=${texts['the hash of root on nodes']}`,
  'torrent.tracker=http://127.0.0.1:1/announce',
  'torrent.seeder=aria2',
  'torrent.seeder_url=http://127.0.0.1:1/jsonrpc',
  `torrent.seeder_secret=${texts['the secret of the seeder']}`,
  // Each server, and each pack, starts a worker, which costs a second with the loader of the tests.
  ...(long
    ? [
        ...['dhcp.server=kea', `dhcp.config=${servers}/dhcp.conf`, 'dhcp.control=true', 'dhcp.gather=1s'],
        ...['dns.server=bind', `dns.config=${servers}/dns.conf`, `dns.directory=${servers}/dns`],
        'dns.control=true'
      ]
    : []),
  'ssh.port=1',
  'log.level=debug'
)
secrets['the first password'] = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8').trim()
secrets["the first admin's token"] = c.token
Object.assign(c, {
  overrides: [
    ...c.overrides,
    `users.root=admin ${cheapHash(texts["the admin's password"] ?? '')}`,
    `users.alice=viewer ${cheapHash(texts["the viewer's password"] ?? '')}`
  ]
})
await c.restart()
for (const override of c.overrides.filter(text => text.startsWith('users.')))
  secrets[`the hash of ${override.slice(6, 11)}`] = override.split(' ')[1] ?? ''
c.token = await c.login('root', texts["the admin's password"])
const viewer = await c.login('alice', texts["the viewer's password"])

await c.post('/config/bmcsetup/boards', { username: 'root', password: texts['the password of BMCs'] })
await c.post('/config/bmcsetup/spare', { username: 'root', password: texts['another password of BMCs'] })
await c.post('/config/switch/sw1', {
  ...{ network: 'cluster', ipaddress: '10.141.200.1' },
  ...{ read: texts['a community for reading'], rw: texts['a community for writing'] }
})
const content = base64(texts['a secret of a group'])
await c.post('/config/secrets/group/compute', [{ name: 'key', path: '/etc/key', content }])
await c.post('/config/secrets/node/n1', [
  { name: 'own', path: '/etc/own', content: base64(texts['a secret of a node']) }
])
await c.post('/config/node/n1', { setupbmc: true, interfaces: [{ interface: 'BMC', network: 'cluster' }] })
await c.post('/config/node/n2', { group: 'compute' })
await c.post('/config/network/cluster', {
  ...{ dhcp: true, dhcp_range_begin: '10.141.99.1', dhcp_range_end: '10.141.99.9' }
})
const own = await scriptToken(c, 'n1')
const other = await scriptToken(c, 'n2')
for (const [who, token] of Object.entries({
  'the admin': c.token,
  'the viewer': viewer,
  'node n1': own,
  'node n2': other
}))
  secrets[`the token of ${who}`] = token
for (const name of ['token.key', 'secret.key'])
  secrets[`the key ${name}`] = readFileSync(join(c.directory, 'state', name))

/** What was seen where. */
const seen: [where: string, text: string][] = []
const see = (where: string, text: string) => seen.push([where, text])

/** Everything by everybody who may not see a secret, and what an admin is answered that is none. */
async function askAll(): Promise<void> {
  const { config } = (await c.get('/config/node')).body
  const addressOf = (node: string, on: string): string =>
    config.node[node].interfaces.find((entry: { interface: string }) => entry.interface === on).ipaddress
  const callers: [string, string | null, string][] = [
    ['nobody inside', null, '10.141.77.7'],
    ['the BMC of node n1', null, addressOf('n1', 'BMC')],
    ['the viewer', viewer, '10.141.77.7'],
    ['node n2', other, addressOf('n2', 'BOOTIF')],
    ['node n1', own, '10.141.77.7']
  ]
  for (const route of table)
    for (const [who, token, source] of callers) {
      // A login tells a token to whom it is for.
      if (route.path === '/token') continue
      // What node n1 is there to read.
      if (who === 'node n1' && /^\/(?:config\/secrets\/node|boot\/cloud-init)/.test(route.path)) continue
      const ask = { token, source }
      const path = pathOf(route)
      const { text } = await (route.method === 'GET' ? c.get(path, ask) : c.post(path, bodyOf(route), ask))
      see(`${route.method} ${path} by ${who}`, text)
    }
  for (const path of [
    ...['boot', 'install', 'kickstart'].map(what => `/config/node/n1/_render/${what}`),
    ...['/config/dhcp/_preview', '/config/dns/_preview', '/monitor/request', '/monitor/status'],
    ...['/service/dhcp/status', '/service/dns/status', '/config/node', '/config/group', '/config/cluster'],
    ...['/kickstart/install/n1', '/boot/search/52:54:00:00:00:01', '/openapi.json']
  ])
    see(`GET ${path} by the admin`, (await c.get(path)).text)
}

/** Requests that are refused while they hold a secret, as someone types it who errs. */
async function err(): Promise<void> {
  const [bmc = '', community = '', group = '', wrong = ''] = [
    texts['the password of BMCs'],
    texts['a community for reading'],
    texts['a secret of a group'],
    texts['a password that is wrong']
  ]
  const wrongly = (value: string) => [
    `${value}${'x'.repeat(99)}`,
    `${value}\0`,
    [value],
    { [value]: value },
    { value }
  ]
  const broken = (body: object) => {
    const text = JSON.stringify(body)
    return [
      text.slice(0, -2),
      `${text.slice(0, -2)}\n"}`,
      `${text},`,
      text.replace('"}', ',"}'),
      text.replace(/"/g, "'")
    ]
  }
  const secret = { name: 'key', path: '/etc/key', content: base64(group) }
  const bodies: [path: string, body: unknown][] = [
    ...wrongly(bmc).map((password): [string, object] => ['/config/bmcsetup/boards', { password }]),
    ['/config/bmcsetup/boards', { password: bmc, nonsense: 1 }],
    ['/config/bmcsetup/boards', { config: { bmcsetup: { spare: { password: bmc } } } }],
    ...wrongly(community).flatMap((value): [string, object][] => [
      ['/config/switch/sw1', { read: value }],
      ['/config/switch/sw1', { rw: value }]
    ]),
    ...[group, ...wrongly(secret.content)].map((content): [string, object] => [
      '/config/secrets/group/compute',
      [{ ...secret, content }]
    ]),
    ['/config/secrets/group/compute', [{ ...secret, path: 'relative' }]],
    ['/config/secrets/group/none', [secret]],
    ['/config/secrets/node/n1/key', { ...secret, name: 'another' }],
    ...[bmc, wrong].map((password): [string, object] => ['/token', { username: 'root', password }]),
    ...wrongly(wrong).map((password): [string, object] => ['/token', { username: 'root', password }]),
    [
      '/config/cluster/import',
      { config: { bmcsetup: { boards: { password: `${bmc}${'x'.repeat(99)}`, a: 1 } } } }
    ],
    [
      '/config/cluster/import',
      { config: { secrets: { group: { compute: [{ ...secret, content: group }] } } } }
    ],
    ['/config/cluster/import', { config: { switch: { sw1: { read: [community] } } } }],
    ...broken({ password: bmc }).map((text): [string, string] => ['/config/bmcsetup/boards', text]),
    ...broken({ read: community }).map((text): [string, string] => ['/config/switch/sw1', text]),
    ...broken({ ...secret }).map((text): [string, string] => ['/config/secrets/group/compute/key', text]),
    ...broken({ username: 'root', password: wrong }).map((text): [string, string] => ['/token', text])
  ]
  for (const [i, [path, body]] of bodies.entries()) {
    const { status, text } = await c.post(path, body, { source: `192.0.2.${i}` })
    t.ok(status < 500, `${path} ${i}: ${status} ${text}`)
    see(`POST ${path} ${i} by the admin: ${JSON.stringify(body).slice(0, 40)}`, text)
  }
  // Where nobody should have written it.
  for (const token of [c.token, viewer, own]) {
    see('a token in the query', (await c.get(`/config/group?x-access-tokens=${token}`, { token: null })).text)
    see('a token that is cut', (await c.get('/config/group', { token: token.slice(0, -1) })).text)
  }
}

/** Programs are run, and fail: a pack, a clone, a grab, a push, and the checkers of the servers. */
async function work(): Promise<void> {
  makeTree(join(c.directory, 'images', 'tree'))
  await c.post('/config/osimage/tree', { path: join(c.directory, 'images', 'tree') })
  if (long) see('a pack', (await c.get('/config/osimage/tree/_pack')).text)
  see('a clone', (await c.post('/config/osimage/tree/_clone', { newosimage: 'twin' })).text)
  // A node that refuses ssh at once.
  await c.post('/config/network/loop', { network: '127.0.0.0/8' })
  await c.post('/config/group/near', { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] })
  await c.post('/config/node/near', { group: 'near' })
  for (const [what, body] of [
    ['node/near/_osgrab', { osimage: 'taken' }],
    ['node/near/_ospush', { osimage: 'tree' }],
    ['group/near/_ospush', { osimage: 'tree' }]
  ] as const) {
    await c.post('/config/osimage/taken', {})
    see(what, (await c.post(`/config/${what}`, body)).text)
  }
  await c.idle()
  for (const id of Object.keys((await c.get('/monitor/request')).body.monitor.request)) {
    see('a record', (await c.get(`/monitor/request/${id}`)).text)
    see('a status', (await c.get(`/config/status/${id}`)).text)
  }
}

function lookAtFiles(): void {
  see('the log', c.log.join(''))
  for (const [where, directory] of [
    ['state', join(c.directory, 'state')],
    ['servers', servers]
  ] as const)
    for (const [path, bytes] of rawFiles(directory)) {
      const name = `${where}/${path}`
      // What these are there for.
      if (!/^state\/(admin-password|token\.key|secret\.key)$/.test(name)) see(name, bytes.toString('latin1'))
    }
  see('argument lists and environments', existsSync(started) ? readFileSync(started, 'latin1') : '')
}

/**
 * Returns the forms of a secret: as it is, in the ways that texts are written, and within something longer
 * in base64.
 */
function formsOf(secret: string | Buffer): string[] {
  const bytes = Buffer.from(secret)
  const text = typeof secret === 'string' ? secret : ''
  // The part that every way of writing leaves as it is.
  const plain = /^[\w$=,.-]{12,}/.exec(text)?.[0] ?? ''
  const encoded = [0, 1, 2].flatMap(skipped => {
    const whole = Buffer.concat([Buffer.alloc(skipped), Buffer.from(plain === '' ? bytes : plain)])
    const inner = whole.toString('base64').slice(skipped === 0 ? 0 : skipped + 1, -4)
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const core = Buffer.from(plain === '' ? bytes : plain).toString('hex')
  const raw =
    plain === '' ? [bytes.toString('latin1'), encodeURIComponent(bytes.toString('latin1'))] : [plain]
  // A token without its signature is none, but the signature is the secret in it.
  const signature = /^[\w-]+\.[\w-]+\.([\w-]{20,})$/.exec(text)?.[1]
  return [...raw, ...encoded, core, core.toUpperCase(), ...(signature ? [signature] : [])]
}

t.test('no secret is where it is not to be', async t => {
  await err()
  await work()
  await askAll()
  await c.post('/config/bmcsetup/spare', { newbmcname: 'renamed' })
  await c.get('/config/bmcsetup/renamed/_delete')
  await c.get('/config/secrets/node/n1/own/_delete')
  lookAtFiles()
  t.match(
    seen.find(([where]) => where.startsWith('argument'))?.[1],
    long ? /kea-dhcp4.*ssh.*ipmitool/s : /ssh.*ipmitool/s,
    'programs were seen'
  )
  t.match(
    seen.find(([where]) => where.endsWith('audit.log'))?.[1],
    /bmcsetup.*secrets/s,
    'the audit log was looked at'
  )
  const found: string[] = []
  let forms = 0
  const all = seen.map(([, text]) => text).join('\0')
  for (const [name, secret] of Object.entries(secrets))
    for (const form of formsOf(secret)) {
      forms++
      if (form.length < 8) t.fail(`${name}: ${form} says nothing`)
      if (!all.includes(form)) continue
      for (const [where, text] of seen)
        if (text.includes(form)) found.push(`${name} (${form.slice(0, 8)}…) in ${where}`)
    }
  proof('secrets looked for wherever they may leak', {
    tried: forms * seen.length,
    note: `${Object.keys(secrets).length} secrets in ${forms} forms, ${seen.length} places, ${found.length} found`
  })
  t.same([...new Set(found)], [])
})

t.test('what is looked for would be found', async t => {
  const secret = 'abcdefghijklmn"\n'
  for (const text of [
    JSON.stringify({ secret }),
    encodeURIComponent(secret),
    `'${secret}'`,
    ...['', 'x', 'xy', 'xyz'].flatMap(before =>
      (['base64', 'base64url', 'hex'] as const).map(how =>
        Buffer.from(`${before}${secret} more`).toString(how)
      )
    )
  ])
    t.ok(
      formsOf(secret).some(form => text.includes(form)),
      text
    )
})
