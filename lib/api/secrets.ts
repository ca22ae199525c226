import { isDeepStrictEqual } from 'node:util'
import { type Caller, isAdmin } from '../auth/access.js'
import { badRequest, notFound } from '../base/errors.js'
import { isObject, type JsonValue } from '../base/json.js'
import {
  cloneSecret,
  putSecrets,
  readSecrets,
  removeSecret,
  type Secret,
  type SecretOwner,
  type SecretPatch,
  secretsKey,
  secretsOf
} from '../model/secrets.js'
import { type ApiRequest, type ApiRoute, actorOf, config, done, ok, type Parts, param } from './context.js'
import { type Body, deletion, get, openEnvelope, post } from './row.js'
import { at, list, map, object, ref } from './schema.js'

type Secrets = Partial<Record<SecretOwner, Readonly<Record<string, readonly Secret[]>>>>

const ofOwners = map(list(ref('secret')))
const schema = at('config.secrets', object({ node: ofOwners, group: ofOwners }))
const answer = (secrets: Secrets) => ok(config('secrets', secrets))

/** The secrets of nodes and groups (rules 5.5). */
export function secretRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const all = (type: SecretOwner, caller: Caller) =>
    Object.fromEntries(
      model.view
        .names(type)
        .filter(name => model.view.get('secrets', secretsKey(type, name)))
        .map(name => [name, shown(parts, type, name, caller)])
    )
  return [
    get('/config/secrets', 'user', {
      summary: 'The secrets of all nodes and groups',
      output: schema,
      handler: ({ caller }) => answer({ node: all('node', caller), group: all('group', caller) })
    }),
    ...(['node', 'group'] as const).flatMap(type => [
      ...readRoutes(parts, type),
      ...changeRoutes(parts, type)
    ])
  ]
}

/** The secrets of one owner, in the clear for an admin and for a node. */
function shown({ model }: Parts, type: SecretOwner, owner: string, caller: Caller): Secret[] {
  const inClear = isAdmin(caller) || caller.kind === 'node'
  return secretsOf(model.view, model.box, type, owner, !inClear)
}

/** The secrets of a node's group; undefined for a group. */
function groupOf(parts: Parts, type: SecretOwner, owner: string, caller: Caller): Secrets['group'] {
  const group = type === 'node' ? parts.model.view.get('node', owner)?.group : undefined
  return group === undefined ? undefined : { [group]: shown(parts, 'group', group, caller) }
}

const baseOf = (type: SecretOwner) => `/config/secrets/${type}/{${type}}`

function readRoutes(parts: Parts, type: SecretOwner): ApiRoute[] {
  const { model } = parts
  const base = baseOf(type)
  // A node reads its own and its group's, which its install script places.
  const access = type === 'node' ? 'node' : 'user'
  return [
    get(base, access, {
      summary: type === 'node' ? "The secrets of a node, and its group's" : 'The secrets of a group',
      output: schema,
      handler: request => {
        const { name } = model.get(type, param(request, type))
        const own = { [type]: { [name]: shown(parts, type, name, request.caller) } }
        const group = groupOf(parts, type, name, request.caller)
        return answer(group ? { ...own, group } : own)
      }
    }),
    get(`${base}/{secret}`, access, {
      summary: `One secret of a ${type}`,
      output: schema,
      handler: request => {
        const { name } = model.get(type, param(request, type))
        const wanted = param(request, 'secret')
        const found = shown(parts, type, name, request.caller).find(entry => entry.name === wanted)
        if (!found) throw notFound(`${type} ${name} has no secret ${wanted}`, 'no-object')
        return answer({ [type]: { [name]: [found] } })
      }
    })
  ]
}

/** The bodies of changes: many secrets, and the one in the path. */
function bodiesOf(parts: Parts, type: SecretOwner): { many: Body<SecretPatch[]>; one: Body<SecretPatch> } {
  const ownerOf = (request: ApiRequest) => param(request, type)
  const opened = (request: ApiRequest) => {
    const body = withoutGroup(request.body, groupOf(parts, type, ownerOf(request), request.caller))
    return openEnvelope(request, `config.secrets.${type}.{${type}}`, [], body)
  }
  const many: Body<SecretPatch[]> = {
    schema,
    read: request => readSecrets(`${type} ${ownerOf(request)}`, opened(request))
  }
  // The secret in the path: a list of one, an object, or an object without its name.
  const one: Body<SecretPatch> = {
    schema,
    read: request => {
      const [owner, name] = [`${type} ${ownerOf(request)}`, param(request, 'secret')]
      const inner = opened(request)
      const entry = Array.isArray(inner) && inner.length === 1 ? inner[0] : inner
      if (!isObject(entry))
        throw badRequest(`${owner}: secret ${name}: the body must be one secret`, 'invalid-body')
      const [given] = readSecrets(owner, [{ name, ...entry }])
      if (given?.name !== name)
        throw badRequest(`${owner}: secret ${name}: field "name" is not ${name}`, 'invalid-field')
      return given
    }
  }
  return { many, one }
}

function changeRoutes(parts: Parts, type: SecretOwner): ApiRoute[] {
  const { model } = parts
  const base = baseOf(type)
  const ownerOf = (request: ApiRequest) => param(request, type)
  const { many, one } = bodiesOf(parts, type)
  const save = async (request: ApiRequest, given: readonly SecretPatch[]) => {
    const owner = ownerOf(request)
    const added = await model.change(actorOf(request), tx => {
      model.get(type, owner, tx)
      return putSecrets(tx, model.box, type, owner, given)
    })
    return done(added ? 201 : 204, `secrets of ${type} ${owner} created`)
  }
  return [
    post(base, 'user', {
      answers: [201, 204],
      summary: `Add or change secrets of a ${type}`,
      body: many,
      handler: save
    }),
    post(`${base}/{secret}`, 'user', {
      answers: [201, 204],
      summary: `Add, change or rename a secret of a ${type}`,
      body: one,
      handler: (request, given) => save(request, [given])
    }),
    post(`${base}/{secret}/_clone`, 'user', {
      answers: [201],
      summary: `Copy a secret of a ${type} under the name in newsecretname`,
      body: one,
      handler: async (request, { newName, name, ...fields }) => {
        const owner = ownerOf(request)
        if (newName === undefined)
          throw badRequest(
            `${type} ${owner}: secret ${name}: field "newsecretname" is missing`,
            'missing-field'
          )
        await model.change(actorOf(request), tx => {
          model.get(type, owner, tx)
          cloneSecret(tx, type, owner, name, newName)
          putSecrets(tx, model.box, type, owner, [{ name: newName, ...fields }])
        })
        return done(201, `secret ${name} cloned to ${newName}`)
      }
    }),
    ...deletion(`${base}/{secret}`, 'user', {
      summary: `Delete a secret of a ${type}`,
      handler: async request => {
        await model.change(actorOf(request), tx => {
          const { name } = model.get(type, ownerOf(request), tx)
          removeSecret(tx, type, name, param(request, 'secret'))
        })
        return { status: 204 }
      }
    })
  ]
}

/** Skips the group's secrets, which a node's answer has too, if they are posted back unchanged. */
function withoutGroup(body: JsonValue | undefined, group: object | undefined): JsonValue | undefined {
  if (!isObject(body) || !isObject(body.config) || !isObject(body.config.secrets)) return body
  const { group: given, ...own } = body.config.secrets
  if (given === undefined || !isDeepStrictEqual(given, group)) return body
  return { ...body, config: { ...body.config, secrets: own } }
}
