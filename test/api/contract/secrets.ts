import type { Cases, Step } from './case.js'
import { base64 } from './world.js'

const munge = { name: 'munge', path: '/etc/munge/munge.key', content: base64('of the group') }
const host = { name: 'host', path: '/etc/ssh/host_key', content: base64('of n1') }
const hidden = (secret: object) => ({ ...secret, content: '********' })
const stored = (content: string) => ({ ...(content === 'of n1' ? host : munge), content })

/** The rows of one kind of owner: what it is called, its name, the secret it has, and another to add. */
function ofOwner(type: 'group' | 'node', owner: string, secret: typeof munge, content: string): Cases {
  const base = `/config/secrets/${type}/${owner}`
  const file = `secrets/${type}.${owner}.json`
  const none = type === 'node' ? 'n9' : 'none'
  const own = { [type]: { [owner]: [secret] } }
  const all = type === 'node' ? { ...own, group: { compute: [munge] } } : own
  const masked =
    type === 'node'
      ? { node: { n1: [hidden(host)] }, group: { compute: [hidden(munge)] } }
      : { group: { compute: [hidden(munge)] } }
  const holding = (...secrets: object[]) => ({ [file]: { name: `${type}.${owner}`, secrets } })
  const extra = { name: 'extra', path: '/etc/extra', content: base64('more') }
  const missing = (path: string, body?: unknown): Step => ({
    what: `a missing ${type}`,
    ask: body === undefined ? [path] : [path, body],
    status: 404,
    says: new RegExp(`${type} ${none} does not exist`)
  })
  const at = (rest = '') => `/config/secrets/${type}/${none}${rest}`
  const unknown = (path: string, body?: unknown): Step => ({
    what: 'a missing secret',
    ask: body === undefined ? [path] : [path, body],
    status: 404,
    says: /secret nothing/
  })
  const byNodes = (path: string, body: unknown): readonly Step[] =>
    type === 'group'
      ? [{ what: "a node's token does not reach it", ask: [path], by: 'n1', status: 403 }]
      : [
          { what: 'for the node itself', ask: [path], by: 'n1', status: 200, body },
          { what: 'not for another', ask: [path], by: 'n2', status: 403, says: /node n2/ }
        ]
  const remove: readonly Step[] = [
    {
      what: 'the last one takes the file along',
      ask: [`${base}/${secret.name}/_delete`],
      status: 204,
      files: { [file]: null }
    },
    unknown(`${base}/nothing/_delete`),
    missing(at('/x/_delete'))
  ]
  return {
    [`GET /config/secrets/${type}/{name}`]: [
      { what: 'in the clear for an admin', ask: [base], status: 200, body: { config: { secrets: all } } },
      {
        what: 'masked for a viewer',
        ask: [base],
        by: 'viewer',
        status: 200,
        body: { config: { secrets: masked } }
      },
      ...byNodes(base, { config: { secrets: all } }),
      missing(at())
    ],
    [`POST /config/secrets/${type}/{name}`]: [
      {
        what: 'a new one',
        ask: [base, { config: { secrets: { [type]: { [owner]: [extra] } } } }],
        status: 201,
        says: new RegExp(owner),
        files: holding(stored(content), { ...extra, content: 'more' })
      },
      {
        what: 'a changed one',
        ask: [base, [{ name: secret.name, content: base64('changed') }]],
        status: 204,
        files: holding({ ...secret, content: 'changed' })
      },
      {
        what: 'no base64',
        ask: [base, [{ ...extra, content: '*' }]],
        status: 400,
        says: /extra.*"content".*base64/
      },
      {
        what: 'a relative path',
        ask: [base, [{ ...extra, path: 'etc/x' }]],
        status: 400,
        says: /extra.*"path".*absolute/
      },
      {
        what: 'no content',
        ask: [base, [{ name: 'extra', path: '/x' }]],
        status: 400,
        says: /extra.*"content"/
      },
      missing(at(), [extra])
    ],
    [`GET /config/secrets/${type}/{name}/{secret}`]: [
      {
        what: 'a list of one',
        ask: [`${base}/${secret.name}`],
        status: 200,
        body: { config: { secrets: own } }
      },
      ...byNodes(`${base}/${secret.name}`, { config: { secrets: own } }),
      unknown(`${base}/nothing`),
      missing(at('/x'))
    ],
    [`POST /config/secrets/${type}/{name}/{secret}`]: [
      {
        what: 'a new one',
        ask: [`${base}/extra`, { path: '/etc/extra', content: base64('more') }],
        status: 201,
        files: holding(stored(content), { ...extra, content: 'more' })
      },
      {
        what: 'renamed',
        ask: [`${base}/${secret.name}`, { newsecretname: 'other' }],
        status: 204,
        files: holding({ ...secret, name: 'other', content })
      },
      { what: 'another name', ask: [`${base}/extra`, { ...extra, name: 'x' }], status: 400, says: /"name"/ },
      {
        what: 'an unknown field',
        ask: [`${base}/extra`, { ...extra, mode: 1 }],
        status: 400,
        says: /"mode"/
      },
      unknown(`${base}/nothing`, { newsecretname: 'x' }),
      missing(at('/extra'), extra)
    ],
    [`POST /config/secrets/${type}/{name}/{secret}/_clone`]: [
      {
        what: 'under another name',
        ask: [`${base}/${secret.name}/_clone`, { newsecretname: 'copy' }],
        status: 201,
        files: holding({ ...secret, content }, { ...secret, name: 'copy', content })
      },
      {
        what: 'no new name',
        ask: [`${base}/${secret.name}/_clone`, {}],
        status: 400,
        says: /"newsecretname"/
      },
      {
        what: 'a name that is taken',
        ask: [`${base}/${secret.name}/_clone`, { newsecretname: secret.name }],
        status: 400
      },
      unknown(`${base}/nothing/_clone`, { newsecretname: 'x' }),
      missing(at('/x/_clone'), { newsecretname: 'y' })
    ],
    [`GET /config/secrets/${type}/{name}/{secret}/_delete`]: remove,
    [`POST /config/secrets/${type}/{name}/{secret}/_delete`]: remove
  }
}

/** Secrets (rules 5.5). */
export const secrets: Cases = {
  'GET /config/secrets': [
    {
      what: 'all of them',
      ask: ['/config/secrets'],
      status: 200,
      body: { config: { secrets: { node: { n1: [host] }, group: { compute: [munge] } } } }
    },
    {
      what: 'masked for a viewer',
      ask: ['/config/secrets'],
      by: 'viewer',
      status: 200,
      body: { config: { secrets: { node: { n1: [hidden(host)] }, group: { compute: [hidden(munge)] } } } }
    }
  ],
  ...ofOwner('group', 'compute', munge, 'of the group'),
  ...ofOwner('node', 'n1', host, 'of n1')
}

const report = (state: unknown) => ({ monitor: { status: { n1: { state } } } })

/** Monitor (rules 2.1, 5.3, 6.2, 6.3). */
export const monitor: Cases = {
  'POST /monitor/node/{node}': [
    {
      what: 'by the node itself',
      ask: ['/monitor/node/n1', report('installer.completed')],
      by: 'n1',
      status: 204,
      files: { 'node-status.journal': [{ node: 'n1', state: 'installer.completed' }] },
      later: ['/config/node/n1', { config: { node: { n1: { status: 'installer.completed' } } } }]
    },
    { what: 'by another node', ask: ['/monitor/node/n1', report('x')], by: 'n2', status: 403 },
    { what: 'an empty state', ask: ['/monitor/node/n1', report('')], status: 400, says: /"state"/ },
    { what: 'no state', ask: ['/monitor/node/n1', report(5)], status: 400, says: /"state"/ },
    { what: "another node's", ask: ['/monitor/node/n2', report('x')], status: 400, says: /n1/ },
    { what: 'a missing node', ask: ['/monitor/node/n9', { state: 'x' }], status: 404, says: /node n9/ }
  ],
  'GET /monitor/node': [
    {
      what: 'the last state of each node',
      ask: ['/monitor/node'],
      status: 200,
      shows: { monitor: { status: { n2: { name: 'n2', state: null, since: null } } } }
    }
  ],
  'GET /monitor/node/{node}': [
    {
      what: 'state, since when, and what was before',
      ask: ['/monitor/node/n2'],
      status: 200,
      shows: { monitor: { status: { n2: { state: null, since: null, history: [] } } } }
    },
    {
      what: 'the state alone without a token',
      ask: ['/monitor/node/n2'],
      by: 'nobody',
      status: 200,
      body: { monitor: { status: { n2: { state: null } } } }
    },
    { what: 'a missing node', ask: ['/monitor/node/n9'], status: 404, says: /node n9/ }
  ],
  'GET /monitor/node/{node}/_boots': [
    {
      what: 'the boots',
      ask: ['/monitor/node/n2/_boots'],
      status: 200,
      shows: { monitor: { boots: { n2: { boots: [] } } } }
    },
    { what: 'a missing node', ask: ['/monitor/node/n9/_boots'], status: 404, says: /node n9/ }
  ],
  'GET /monitor/node/{node}/_why': [
    {
      what: 'a rule and a sentence',
      ask: ['/monitor/node/n2/_why'],
      status: 200,
      shows: { monitor: { why: { n2: { rule: /^[a-z-]+$/, verdict: /n2/, see: /troubleshooting/ } } } }
    },
    { what: 'a missing node', ask: ['/monitor/node/n9/_why'], status: 404, says: /node n9/ }
  ],
  'GET /monitor/events': [
    {
      what: 'what there is',
      ask: ['/monitor/events?follow=no'],
      by: 'viewer',
      status: 200,
      text: /^retry: 2000\n\nid: /
    },
    { what: 'another word', ask: ['/monitor/events?follow=never'], status: 400, says: /"follow"/ }
  ],
  'GET /monitor/overview': [
    {
      what: 'all nodes',
      ask: ['/monitor/overview'],
      by: 'viewer',
      status: 200,
      shows: { monitor: { overview: { mark: /^[\da-f]+-\d+$/, columns: ['name', 'group'] } } }
    },
    { what: 'an unknown key', ask: ['/monitor/overview?x=1'], status: 400, says: /"x"/ }
  ],
  'GET /metrics': [
    { what: 'for a user', ask: ['/metrics'], by: 'viewer', status: 200, text: /^# HELP svcd_/ }
  ],
  'GET /monitor/audit': [
    {
      what: 'by users',
      ask: ['/monitor/audit'],
      status: 200,
      shows: { monitor: { audit: [{ type: /./ }] } }
    },
    { what: 'by nobody that is', ask: ['/monitor/audit?by=cats'], status: 400, says: /"by"/ }
  ],
  'GET /monitor/service/{service}': [
    {
      what: 'the daemon itself',
      ask: ['/monitor/service/svcd'],
      status: 200,
      shows: { monitor: { service: { svcd: { status: 'ok', reason: '', since: /^\d{4}-.*Z$/ } } } }
    },
    {
      what: 'its status alone without a token',
      ask: ['/monitor/service/svcd'],
      by: 'nobody',
      status: 200,
      body: { monitor: { service: { svcd: { status: 'ok' } } } }
    },
    { what: 'an unknown one', ask: ['/monitor/service/none'], status: 404, says: /service none/ }
  ]
}
