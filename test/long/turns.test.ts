import t from 'tap'
import { Controller, type Reply } from '../support/controller.js'
import { longestTurn } from '../support/turns.js'

const NODES = Number(process.env.SVCD_TURN_NODES ?? 10_000)
const nic = { interface: 'BOOTIF', network: 'cluster' }

// rules 12.10
t.test(`what each route costs in one turn, with ${NODES} nodes`, { timeout: 7_000_000 }, async t => {
  const c = await Controller.start(t, 'http.max_body=64m')
  await c.cluster()
  const names = Array.from({ length: NODES }, (_, i) => `n${i}`)
  const node = Object.fromEntries(
    names.map((name, i) => [
      name,
      {
        group: 'compute',
        comment: `c ${i}`,
        interfaces: [{ ...nic, ipaddress: `10.141.${64 + (i >> 8)}.${i & 255}` }]
      }
    ])
  )
  const asked: Record<string, string> = {
    ...{
      node: 'n7',
      hostname: 'n7',
      group: 'compute',
      groupname: 'compute',
      network: 'cluster',
      osimage: 'compute'
    },
    ...{ interface: 'BOOTIF', macaddress: '52:54:00:00:00:07', service: 'svcd', secret: 'x', tagname: 'x' }
  }
  const { body: document } = await c.get('/openapi.json')
  const gets = Object.entries(document.paths as Record<string, { get?: object }>)
    .filter(([path, { get }]) => get && !/_delete$|events|pagefile|\{(?:file|tarball)\}/.test(path))
    .map(([path]) => path.replace(/\{(\w+)\}/g, (_, name: string) => asked[name] ?? 'x'))
  const eight = 'sort=comment,-group,osimage,-domain,netboot,status,macaddr,-name'
  const fields = names.slice(0, 128).map(name => `${name}.ipaddress`)
  const lists = ['json', 'text', 'csv'].flatMap(format => [
    `/config/node?format=${format}`,
    `/config/node?format=${format}&${eight}`,
    `/config/node?format=${format}&fields=${fields.join(',')}`,
    `/config/node?format=${format}&nodes=@all!n[0-5000]^@osimage:compute`,
    `/monitor/node?format=${format}&sort=-name`,
    `/config/group/compute/_member?format=${format}&sort=-name`,
    `/config/network/cluster/_list?format=${format}&sort=-ipaddress`
  ])
  const large = 60 * 1024 * 1024
  const posts: [what: string, path: string, body: string | object][] = [
    ['an import of all', '/config/cluster/import', { config: { node } }],
    ['a dry run of it', '/config/cluster/import?dryrun=yes', { config: { node } }],
    [
      'a table of all',
      '/config/node?format=csv',
      ['name,comment', ...names.map(name => `${name},t`), ''].join('\n')
    ],
    [
      'a wrong table',
      '/config/node?format=csv',
      ['name,netboot', ...names.map(name => `${name},what`), ''].join('\n')
    ],
    ['a set of all', '/config/node/_set', { nodes: names.join(','), fields: { comment: 'y' } }],
    ['a dry run of it', '/config/node/_set?dryrun=yes', { nodes: '@all', fields: { comment: 'z' } }],
    [
      'power of all',
      '/control/action/power/_status',
      { control: { power: { status: { hostlist: names.join(',') } } } }
    ],
    [
      'a set of 60 MB',
      '/config/node/_set',
      `{"nodes":"${'n1,'.repeat(large / 3)}n1","fields":{"comment":"y"}}`
    ],
    ['a text of 60 MB', '/config/node/n1', `{"comment":${JSON.stringify('x'.repeat(large))}x}`],
    ['a field of 60 MB', '/config/node/n1', `{"nothing":"${'x'.repeat(large)}"}`],
    ['escapes', '/config/node/n1', `{"nothing":"${'\\n'.repeat(large / 2)}"}`],
    ['an unknown key of 60 MB', '/config/node/n1', `{"${'x'.repeat(large)}":1}`],
    [
      'many keys',
      '/config/node/n1',
      `{${Array.from({ length: 3_000_000 }, (_, i) => `"k${i}":1`).join(',')}}`
    ],
    ['many entries', '/config/node/n1', `{"interfaces":[${'{},'.repeat(large / 3 - 10)}{}]}`],
    ['a long number', '/config/node/n1', `{"a":${'1'.repeat(large)}}`],
    ['blanks', '/config/node/n1', `{"a":${' '.repeat(large)}1}`],
    [
      'many interfaces',
      '/config/node/n1',
      { interfaces: names.map(name => ({ interface: name, options: 'x' })) }
    ],
    ['many files', '/config/node/n1', { files: names }],
    ['many roles', '/config/node/n1', { roles: names.join(',').repeat(100) }],
    ['a MAC of 60 MB', '/config/node/n1', `{"macaddr":"${'0'.repeat(large)}"}`],
    ['a table of one line', '/config/node?format=csv', `name,${'x,'.repeat(large / 2)}`],
    ['quotes', '/config/node?format=csv', `name\n${'""'.repeat(large / 2)}`]
  ]
  const held: [ms: number, what: string, status: number][] = []
  const measure = async (what: string, ask: () => Promise<Reply>) => {
    let reply: Reply | undefined
    const ms = await longestTurn(async () => {
      reply = await ask()
    })
    held.push([ms, what, reply?.status ?? 0])
    if (ms > 50 || process.env.SVCD_TURNS)
      console.error(`${ms.toFixed(0)} ms: ${what}: ${reply?.status} ${reply?.text.slice(0, 100)}`)
  }
  for (const [what, path, body] of posts) {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    await measure(`POST ${path}: ${what}, ${text.length} characters`, () => c.post(path, text))
  }
  for (const path of [...lists, ...gets]) await measure(`GET ${path.slice(0, 100)}`, () => c.get(path))
  held.sort(([a], [b]) => b - a)
  for (const [ms, what, status] of held.slice(0, 30)) t.comment(`${ms.toFixed(1)} ms: ${what}: ${status}`)
  t.ok(held.length > 100)
})
