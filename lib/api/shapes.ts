import type { TypeName } from '../model/docs.js'
import type { Field } from '../model/field.js'
import type { ObjectType } from '../model/object-type.js'
import { settingTypes } from '../model/settings.js'
import { interfaceFields } from '../model/tables.js'
import { objectTypes } from '../model/types.js'

/** A JSON Schema (draft 2020-12, as OpenAPI 3.1 uses it) of a body, for the documents. */
export type Schema = { readonly [key: string]: unknown }

const string = (description?: string): Schema => ({ type: 'string', ...(description ? { description } : {}) })
const object = (properties: Readonly<Record<string, unknown>>, required?: readonly string[]): Schema => ({
  type: 'object',
  properties,
  ...(required ? { required } : {})
})
const list = (items: Schema): Schema => ({ type: 'array', items })
const map = (values: Schema): Schema => ({ type: 'object', additionalProperties: values })
const ref = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` })

/** `{"config": {type: {name: inner}}}`. */
const envelope = (type: string, inner: Schema): Schema => object({ config: object({ [type]: map(inner) }) })
const bare = (key: string, value: Schema) => ({ [key]: value })

const jsonType = (field: Field) => {
  if (field.type.json === 'null') return { type: 'null' }
  const type = field.type.json
  const types = field.name === 'switchport' ? ['integer', 'string', 'null'] : [type, 'null']
  return { type: types, ...(type === 'array' ? { items: { type: 'string' } } : {}) }
}

/** A field as the documents show it: its type, what it means, what it takes, where else it may come from. */
function property(field: Field): Schema {
  const notes = [`${field.meaning} (${field.type.expected})`]
  if (field.inherited) notes.push(`inherited from the ${field.inherited}`)
  if (field.also) notes.push(`also spelled ${field.also.join(', ')}`)
  return {
    ...jsonType(field),
    description: notes.join('; '),
    ...(field.default === undefined ? {} : { default: field.default }),
    ...(field.derived ? { readOnly: true } : {})
  }
}

function objectSchema(type: ObjectType): Schema {
  const properties: Record<string, unknown> = { name: string('name') }
  for (const field of type.fields) properties[field.name] = property(field)
  if (type.interfaces) {
    properties.interfaces = list(ref('interface'))
    properties._override = { type: 'boolean', description: 'the object itself sets an inheritable field' }
    for (const field of type.fields)
      if (field.inherited)
        properties[`_${field.name}_source`] = {
          ...string('who sets the value in force'),
          enum:
            type.type === 'node' ? ['node', 'group', 'cluster', 'default'] : ['group', 'cluster', 'default'],
          readOnly: true
        }
  }
  for (const key of type.newName)
    properties[key] = { ...string('renames, and names the copy of a clone'), writeOnly: true }
  return object(properties)
}

const interfaceSchema = object(
  {
    ...Object.fromEntries(interfaceFields.map(field => [field.name, property(field)])),
    force: {
      type: 'boolean',
      description: 'takes an address in the dynamic range, or of another node',
      writeOnly: true
    }
  },
  ['interface']
)

/** The named schemas that the routes' bodies refer to. */
export const components: Readonly<Record<string, Schema>> = {
  ...Object.fromEntries(Object.values(objectTypes).map(type => [type.type, objectSchema(type)])),
  interface: interfaceSchema,
  message: object({ message: string('what happened, or what is wrong with which field') }, ['message']),
  secret: object({
    name: string(),
    path: string('absolute path in the image'),
    content: string('base64'),
    newsecretname: { ...string(), writeOnly: true }
  }),
  osimagetag: object({
    name: string('tag'),
    osimage: string(),
    kernelfile: { type: ['string', 'null'] },
    initrdfile: { type: ['string', 'null'] },
    imagefile: { type: ['string', 'null'] }
  }),
  settings: object(
    Object.fromEntries(
      Object.entries(settingTypes).map(([name, type]) => [
        name,
        { type: type.json, description: type.expected }
      ])
    )
  )
}

const interfaces = (type: string) =>
  object({
    config: object({ [type]: map(object({ interfaces: list(ref('interface')) })) }),
    interfaces: list(ref('interface'))
  })
const members = (type: string) => envelope(type, object({ members: list(string()) }))
const inNetwork = (key: string, value: Schema) =>
  object({ config: object({ network: map(object(bare(key, value))) }), ...bare(key, value) })
const taken = list(object({ ipaddress: string(), device: string() }))
const addressState = map(object({ status: { type: 'string', enum: ['free', 'taken'] } }))
const report = object({ state: string('up to 1,024 characters') }, ['state'])

const jobState = { type: 'string', enum: ['queued', 'running', 'done', 'failed'] }
const progress = { type: 'number', minimum: 0, maximum: 1 }
const time = { type: ['string', 'null'], format: 'date-time' }
const requestSummary = {
  request_id: string(),
  kind: string('pack, kernel, clone, delete, grab, push'),
  object: string('what it is about'),
  by: string('who asked'),
  state: jobState,
  progress,
  queued: time,
  started: time,
  ended: time,
  message: string('queued, running, done, or failed and why')
}
const requests = (inner: Schema) => object({ monitor: object({ request: map(inner) }) })

const serviceOf = (more: Readonly<Record<string, Schema>>) =>
  object({
    monitor: object({
      service: map(
        object({
          status: { type: 'string', enum: ['ok', 'failed'] },
          reason: string(),
          since: { type: 'string', format: 'date-time' },
          ...more
        })
      )
    })
  })

/** The bodies of the routes. */
export const shapes = {
  message: ref('message'),
  objects: (type: TypeName) => envelope(type, ref(type)),
  interfaces,
  members,
  taken: inNetwork('taken', taken),
  nextip: inNetwork('nextip', string('an IPv4 address')),
  addressState: { allOf: [object({ config: object({ network: addressState }) })] },
  tags: envelope('osimagetag', ref('osimagetag')),
  tag: envelope('osimage', object({ tag: string() }, ['tag'])),
  kernel: envelope(
    'osimage',
    object({
      kernelfile: string('file below /boot of the image'),
      initrdfile: string('file below /boot of the image; built where absent'),
      kernelversion: string('also spelled kernver; alone it means vmlinuz-<version>')
    })
  ),
  transferOf: (type: 'node' | 'group') =>
    envelope(
      type,
      object({ osimage: string(), dryrun: { type: 'boolean', description: 'only tell the changes' } }, [
        'osimage'
      ])
    ),
  secrets: object({
    config: object({ secrets: object({ node: map(list(ref('secret'))), group: map(list(ref('secret'))) }) })
  }),
  cluster: object({
    config: object({
      cluster: {
        allOf: [ref('settings'), { type: 'object', description: 'and an object for each controller' }]
      }
    })
  }),
  transfer: object({
    config: object({
      cluster: ref('settings'),
      ...Object.fromEntries(Object.keys(objectTypes).map(type => [type, map(ref(type))])),
      osimagetag: map(ref('osimagetag')),
      secrets: object({ node: map(list(ref('secret'))), group: map(list(ref('secret'))) })
    })
  }),
  credentials: object({ username: string(), password: string() }, ['username', 'password']),
  token: object({ token: string() }, ['token']),
  version: object({
    version: object({ service: string(), api: { type: 'integer' }, commit: string() }, [
      'service',
      'api',
      'commit'
    ])
  }),
  payload: object({ target: string(), script: string('base64') }, ['target', 'script']),
  report: object({ monitor: object({ status: map(report) }) }),
  nodeStatus: object({
    monitor: object({
      status: map(
        object({
          state: { type: ['string', 'null'] },
          since: { type: ['string', 'null'], format: 'date-time' },
          reason: { type: ['string', 'null'], description: 'why the node was last refused a boot script' },
          history: list(object({ state: string(), time: { type: 'string', format: 'date-time' } }))
        })
      )
    })
  }),
  service: serviceOf({}),
  serviceStatus: serviceOf({
    server: string('as the ini names it'),
    state: { type: 'string', enum: ['running', 'stopped', 'unknown'] },
    output: string('what the control command says')
  }),
  preview: object({
    config: map(
      object({
        server: string(),
        files: list(
          object({ path: string(), text: string(), diff: string('unified, against what is in force') })
        )
      })
    )
  }),
  acknowledgement: object({ message: string('queued'), request_id: string() }, ['message', 'request_id']),
  requestStatus: object({
    message: string('the lines that this user was not told yet, joined by ;;'),
    status: { type: 'integer', enum: [200, 500] },
    request_id: string(),
    state: jobState,
    progress
  }),
  requests: requests(object(requestSummary)),
  request: requests(object({ ...requestSummary, lines: list(string()), results: { type: 'object' } })),
  /** An iPXE script, an install script, a kickstart. */
  text: { type: 'string' },
  /** A file. */
  bytes: { type: 'string', format: 'binary' }
} as const
