import { readFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { Validator } from '@seriousme/openapi-schema-validator'
import t from 'tap'
import { accessDocument, apiDocument } from '../../lib/api/documents.js'
import { openapi } from '../../lib/api/openapi.js'
import { accessOf } from '../../lib/auth/access.js'
import { errorsDocument } from '../../lib/base/error-codes.js'
import { objectTypes } from '../../lib/model/types.js'
import { Controller } from '../support/controller.js'
import { table } from '../support/routes.js'
import { contract, keyOf } from './contract/case.js'

const doc = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')

t.test('docs/errors.md is what the table of codes says', t => {
  t.equal(doc('errors.md'), errorsDocument(), 'docs/errors.md is stale: type `make docs`')
  t.end()
})

// rules 2.12
t.test('docs/api.md is what the tables of today say', t => {
  const stale = 'docs/api.md is stale: type `make docs`'
  t.equal(doc('api.md'), apiDocument(table, doc('api-intro.md')), stale)
  for (const route of table)
    t.match(doc('api.md'), `| ${route.method} | \`${route.path}\` | ${route.summary} |`)
  for (const type of Object.values(objectTypes))
    for (const field of type.fields)
      for (const name of [field.name, ...(field.otherSpellings ?? [])]) t.match(doc('api.md'), `\`${name}\``)
  t.end()
})

// rules 5.2
t.test('docs/access.md has the table of the routes of today', t => {
  t.equal(
    doc('access.md'),
    accessDocument(table, doc('access.md')),
    'docs/access.md is stale: type `make docs`'
  )
  t.match(doc('access.md'), '| POST `/config/node/_set` | no | yes | the nodes of their groups')
  t.notMatch(doc('access.md'), '/config/cluster/import')
  t.end()
})

const c = await Controller.start(t)
const { body: document, headers, text } = await c.get('/openapi.json', { token: null })

t.test('GET /openapi.json is valid OpenAPI 3.1', async t => {
  t.equal(headers['content-type'], 'application/json')
  const validator = new Validator()
  const { valid, errors } = await validator.validate(JSON.parse(text))
  t.ok(valid, JSON.stringify(errors ?? '').slice(0, 2000))
  t.equal(validator.version, '3.1')
  const broken = JSON.parse(text)
  delete broken.paths['/version'].get.responses
  broken.paths['/version'].get.parameters = [{ name: 'x' }]
  t.notOk((await new Validator().validate(broken)).valid, 'the validator would tell')
  t.same(document, JSON.parse(JSON.stringify(openapi(table))), 'made from the route table')
})

interface Operation {
  readonly operationId: string
  readonly summary: string
  readonly description: string
  readonly security?: readonly object[]
  readonly parameters: readonly { name: string; in: string; required?: boolean }[]
  readonly requestBody?: { content: Record<string, { schema: object }> }
  readonly responses: Record<string, { description: string; content?: Record<string, { schema: object }> }>
}
const operationOf = (route: { method: string; path: string }): Operation =>
  document.paths[route.path]?.[route.method.toLowerCase()]

// rules 2.12
t.test('every route is in it, with summary, codes, access and the shapes of its bodies', t => {
  const operations = Object.values<Record<string, Operation>>(document.paths).flatMap(methods =>
    Object.values(methods)
  )
  t.equal(operations.length, table.length)
  t.equal(new Set(operations.map(operation => operation.operationId)).size, table.length, 'ids are different')
  for (const route of table) {
    const key = keyOf(route)
    const operation = operationOf(route)
    t.match(operation.summary, /^[A-Z].{5,}[^.]$/, `${key}: a line that says what it does`)
    t.equal(operation.description, `Access: ${accessOf(route).says}.`, `${key}: who may`)
    t.same(Object.keys(operation.responses), route.codes.map(String).sort(), `${key}: its codes`)
    for (const [code, response] of Object.entries(operation.responses)) {
      t.not(response.description, 'refused', `${key} ${code}: a description`)
      if (code === '204') t.notOk(response.content, `${key}: 204 has no body`)
      else t.ok(response.content, `${key} ${code}: a body`)
    }
    t.equal(
      operation.requestBody !== undefined,
      route.body !== 'ignored',
      `${key}: a request body where there is one`
    )
    if (route.effect === 'reads' || route.path.startsWith('/boot'))
      t.ok(route.output, `${key}: the shape of its answer`)
    const parameters = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)
    t.same(
      operation.parameters.map(({ name, in: where, required = false }) => [name, where, required]),
      [
        ...parameters.map(name => [name, 'path', true]),
        ...Object.keys(route.query).map(name => [name, 'query', false])
      ],
      `${key}: its parameters`
    )
    const token = ['anyone', 'machine'].includes(route.access) ? undefined : [{ token: [] }]
    const needed = ['reader', 'user', 'admin', 'login', 'node'].includes(route.access)
    t.same(
      operation.security,
      token && (needed ? token : [{}, ...token]),
      `${key}: whether it takes a token, and needs it`
    )
  }
  t.end()
})

t.test('every reference leads to a schema, and every schema is used', t => {
  const used = new Set([...text.matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name))
  t.same([...used].sort(), Object.keys(document.components.schemas).sort())
  t.end()
})

t.test('the schemas have every field of the contract', t => {
  for (const [type, fields] of Object.entries(contract.fields)) {
    const { properties } = document.components.schemas[type]
    t.same(
      fields.filter(field => !Object.hasOwn(properties, field)),
      [],
      type
    )
    for (const [name, property] of Object.entries<{ $ref?: string; type?: unknown }>(properties))
      t.ok(property.type ?? property.$ref, `${type}.${name} has a type`)
  }
  t.end()
})

// A generated client leaves out what is marked readOnly. A request may set the MAC of a node (rules 3.9).
t.test('only fields that no request changes are marked readOnly', t => {
  const { properties } = document.components.schemas.node
  const readOnly = Object.keys(properties).filter(name => properties[name].readOnly)
  t.same(
    readOnly.filter(name => !name.startsWith('_')),
    ['status', 'osimagetagid']
  )
  t.end()
})

t.test('what svcd answers is what it says', async t => {
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute', switchport: 'Gi1/0/1', roles: 'a,b' })
  await c.post('/config/bmcsetup/b', {})
  await c.post('/config/switch/s', {})
  await c.post('/config/otherdev/o', {})
  await c.post('/config/osimage/compute/tag', { tag: 'v1' })
  await c.post('/config/secrets/node/n1/k', { path: '/k', content: '' })
  const { schemas } = document.components
  const paths = [
    ...[
      'group',
      'node',
      'network',
      'osimage',
      'bmcsetup',
      'switch',
      'otherdev',
      'file',
      'osimagetag',
      'secrets',
      'cluster'
    ].map(type => `/config/${type}`),
    '/config/group/{group}/interfaces',
    '/config/node/{node}/interfaces',
    '/config/network/{network}/_list',
    '/config/network/{network}/_nextfreeip',
    '/config/group/{group}/_member',
    '/monitor/node/{node}',
    '/monitor/service/{service}',
    '/version'
  ]
  const names: Record<string, string> = { group: 'compute', node: 'n1', network: 'cluster', service: 'svcd' }
  for (const path of paths) {
    const schema = operationOf({ method: 'GET', path }).responses['200']?.content?.['application/json']
      ?.schema
    const target = path.replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? '')
    let answer = await c.get(target)
    // While this machine is busy, svcd itself may not be well.
    while (answer.status === 503) {
      await setTimeout(100)
      answer = await c.get(target)
    }
    const { body } = answer
    t.same(misfits(body, schema as Schema, schemas, ''), [], path)
  }
})

interface Schema {
  readonly $ref?: string
  readonly type?: string | readonly string[]
  readonly enum?: readonly unknown[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: Schema
  readonly items?: Schema
  readonly allOf?: readonly Schema[]
}

const typeOf = (value: unknown) =>
  value === null
    ? 'null'
    : Array.isArray(value)
      ? 'array'
      : Number.isInteger(value)
        ? 'integer'
        : typeof value

/** Where a value is not what its schema says: the few words of JSON Schema that the document uses. */
function misfits(value: unknown, schema: Schema, schemas: Record<string, Schema>, at: string): string[] {
  if (schema.$ref) return misfits(value, schemas[schema.$ref.split('/').at(-1) ?? ''] as Schema, schemas, at)
  const found = (schema.allOf ?? []).flatMap(part => misfits(value, part, schemas, at))
  if (schema.type && ![schema.type].flat().includes(typeOf(value)))
    return [...found, `${at} is ${typeOf(value)}`]
  if (schema.enum && !schema.enum.includes(value)) found.push(`${at} is ${value}`)
  if (Array.isArray(value))
    return [...found, ...value.flatMap((item, i) => misfits(item, schema.items ?? {}, schemas, `${at}/${i}`))]
  if (typeof value !== 'object' || value === null) return found
  for (const name of schema.required ?? [])
    if (!Object.hasOwn(value, name)) found.push(`${at}/${name} is missing`)
  for (const [key, inner] of Object.entries(value)) {
    const part = schema.properties?.[key] ?? schema.additionalProperties
    if (part) found.push(...misfits(inner, part, schemas, `${at}/${key}`))
    else if (schema.properties && !schema.allOf && at !== '/config/cluster')
      found.push(`${at}/${key} is not described`)
  }
  return found
}
