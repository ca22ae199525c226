import { errorCodes } from '../base/error-codes.js'
import type { TypeName } from '../model/docs.js'
import { base64, port } from '../model/field.js'
import type { ObjectType } from '../model/object-type.js'
import { type BodyField, interfaceEntry } from '../model/request.js'
import { secretEntry } from '../model/secrets.js'
import { clusterFields } from '../model/settings.js'
import { objectTypes } from '../model/types.js'

/** A JSON Schema (draft 2020-12, as in OpenAPI 3.1) of a body, for the documents. */
export type Schema = { readonly [key: string]: unknown }

/** Returns the schema of a string. */
export const string = (description?: string): Schema => ({
  type: 'string',
  ...(description ? { description } : {})
})
/** One of these words. */
export const word = (...values: readonly string[]): Schema => ({ type: 'string', enum: values })
export const time: Schema = { type: 'string', format: 'date-time' }
/** A schema of one type, or null. */
export const orNull = (schema: Schema): Schema => ({ ...schema, type: [schema.type, 'null'] })
/** An object with these properties. */
export const object = (properties: Schema, required: readonly string[] = []): Schema => ({
  type: 'object',
  properties,
  ...(required.length > 0 ? { required } : {})
})
/** The state of one of several controllers (rules 11.15). */
export const standing = object({
  role: word('primary', 'standby', 'unknown'),
  revision: { type: 'integer', description: 'number of the last change that it has' },
  lag_ms: {
    type: 'integer',
    description: 'time since it was last known to have all changes; 0 on the primary'
  }
})
/** Returns the schema of a list. */
export const list = (items: Schema): Schema => ({ type: 'array', items })
/** An object whose keys are names. */
export const map = (values: Schema): Schema => ({ type: 'object', additionalProperties: values })
/** A schema of `components`. */
export const ref = (name: keyof typeof components): Schema => ({ $ref: `#/components/schemas/${name}` })

/** `inner` at a path: `config.node.{node}` is `{"config": {"node": {"<node>": inner}}}` (rules 1.1). */
export const at = (path: string, inner: Schema): Schema =>
  path
    .split('.')
    .reduceRight((schema, step) => (step.startsWith('{') ? map(schema) : object({ [step]: schema })), inner)

/** These properties at a path, and at the top level as well (rules 1.1). */
export const twice = (path: string, properties: Schema): Schema =>
  object({ ...(at(path, object(properties)).properties as Schema), ...properties })

/** An iPXE script, an install script, a kickstart. */
export const plainText: Schema = { type: 'string' }
export const csv: Schema = { type: 'string', description: 'RFC 4180; the first line names the fields' }
export const bytes: Schema = { type: 'string', format: 'binary' }

/** A field of a body: its type, meaning, values, and the sources that it inherits from. */
export function property(field: BodyField): Schema {
  const { json, expected } = field.type
  const notes = [`${field.meaning} (${expected})`]
  if (field.inherited) notes.push('nodes inherit it from their group')
  if (field.inherited === 'cluster') notes.push('groups inherit it from the cluster')
  if (field.otherSpellings) notes.push(`also spelled ${field.otherSpellings.join(', ')}`)
  const types = field.type === port ? [json, 'string'] : [json]
  return {
    type: field.required ? json : [...new Set([...types, 'null'])],
    ...(json === 'array' ? { items: { type: 'string' } } : {}),
    ...(field.isMergedByKey ? { additionalProperties: { type: ['string', 'null'] } } : {}),
    description: notes.join('; '),
    ...(field.refers ? { 'x-refers': field.refers } : {}),
    ...(field.type.values ? { 'x-values': field.type.values } : {}),
    ...(field.type === base64 ? { contentEncoding: 'base64' } : {}),
    ...(field.default === undefined ? {} : { default: field.default }),
    ...(field.derived === true ? { readOnly: true } : {}),
    ...(field.requestOnly ? { writeOnly: true } : {})
  }
}

const properties = (fields: readonly BodyField[]) =>
  Object.fromEntries(fields.map(field => [field.name, property(field)]))

/** A pack that a node runs, or would. */
const pack = { osimage: string(), osimagetag: string(), pack: string(), sha256: string() }
const runningPack = { ...pack, since: time, seen: time }
const containerImage = {
  ...{ reference: string('as it was asked for'), digest: string('sha256:… of its manifest') },
  time: { type: 'integer', description: 'when it was fetched, milliseconds since 1970' },
  ...{ labels: map(string()), layers: list(string('sha256:… of a layer, the lowest first')) }
}

/** A field of answers alone. */
const shown = (schema: Schema, description: string) => ({ ...schema, description, readOnly: true })

/** The fields of nodes, and of OS images, that are not in the field table. */
const derivedFields: Partial<Record<TypeName, Schema>> = {
  node: {
    _running: shown(orNull(object(runningPack)), 'the packed image that it runs; null if unknown'),
    _stale: shown(
      orNull(object(pack)),
      'the packed image that it would get at a reboot, if it differs; else null'
    )
  },
  osimage: {
    _source: shown(
      orNull(object(containerImage)),
      'the container image that its directory was made of; null if it was not imported'
    ),
    _rehearsed: shown(
      orNull(string()),
      'when, as which node and how its pack booted in a virtual machine; null: it did not'
    ),
    _kernelsigner: shown(
      orNull(string()),
      'who signed its packed kernel for Secure Boot, none for nobody; null if unknown'
    )
  }
}

function objectSchema({ type, fields, interfaces, newName }: ObjectType): Schema {
  const sources = type === 'node' ? ['node', 'group', 'cluster', 'default'] : ['group', 'cluster', 'default']
  const source = shown(word(...sources), 'where the value in force is set')
  const inherited = fields.filter(field => field.inherited).map(({ name }) => [`_${name}_source`, source])
  const naming = { ...string('the new name, for a rename or a clone'), writeOnly: true }
  return object({
    name: string('name'),
    ...properties(fields),
    ...(interfaces
      ? {
          interfaces: list(ref('interface')),
          _override: { type: 'boolean', description: 'the object itself sets an inheritable field' },
          ...Object.fromEntries(inherited),
          _variables_source: { ...map(source), readOnly: true },
          _kerneloptions: shown(string(), 'kernel options in force'),
          _kerneloptions_source: shown(
            string(),
            'where its parts are set, such as image+group+node; default: nowhere'
          )
        }
      : {}),
    ...derivedFields[type],
    ...Object.fromEntries(newName.map(key => [key, naming]))
  })
}

const nullable = orNull(string())

/** Refusals by status, each with its stable codes. */
const refusals = Object.fromEntries(
  Object.entries(errorCodes).map(([status, codes]) => [
    `refusal${status}`,
    object(
      {
        message: string('what is wrong with which field'),
        code: { ...word(...Object.keys(codes)), description: 'a stable word for programs (docs/errors.md)' }
      },
      ['message', 'code']
    )
  ])
) as Record<`refusal${keyof typeof errorCodes}`, Schema>

/** The named schemas that the routes' bodies refer to. */
export const components = {
  ...(Object.fromEntries(Object.values(objectTypes).map(type => [type.type, objectSchema(type)])) as Record<
    TypeName,
    Schema
  >),
  interface: object(properties(interfaceEntry), ['interface']),
  message: object({ message: string('what happened') }, ['message']),
  ...refusals,
  secret: object(properties(secretEntry)),
  osimagetag: object({
    name: string('tag'),
    osimage: string(),
    kernelfile: nullable,
    initrdfile: nullable,
    imagefile: nullable,
    kerneloptions: string('the kernel options of the image when the tag was set')
  }),
  settings: object(properties(clusterFields))
}
