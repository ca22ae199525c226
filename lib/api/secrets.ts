import { isDeepStrictEqual } from 'node:util'
import { type Caller, isAdmin } from '../auth/access.js'
import { badRequest, notFound } from '../errors.js'
import type { Answer } from '../http/route.js'
import { isObject, type JsonValue } from '../json.js'
import {
  cloneSecret,
  type GivenSecret,
  putSecrets,
  readSecrets,
  removeSecret,
  type Secret,
  type SecretOwner,
  secretsKey,
  secretsOf
} from '../model/secrets.js'
import { type ApiRequest, type ApiRoute, actorOf, done, type Parts, param } from './context.js'
import { open } from './envelope.js'
import { shapes } from './shapes.js'

const owners = ['node', 'group'] as const

/** The secrets of nodes and groups (rules 5.5). */
export function secretRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const list = (type: SecretOwner, owner: string, caller: Caller): Secret[] => {
    const inClear = isAdmin(caller) || caller.kind === 'node'
    return secretsOf(model.view, model.box, type, owner, !inClear)
  }
  const answer = (secrets: Partial<Record<SecretOwner, Record<string, readonly Secret[]>>>): Answer => ({
    status: 200,
    body: { config: { secrets } }
  })
  return [
    {
      method: 'GET',
      path: '/config/secrets',
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401],
      summary: 'The secrets of all nodes and groups',
      output: shapes.secrets,
      handler: request => {
        const ofType = (type: SecretOwner) =>
          Object.fromEntries(
            model.view
              .names(type)
              .filter(name => model.view.get('secrets', secretsKey(type, name)))
              .map(name => [name, list(type, name, request.caller)])
          )
        return answer({ node: ofType('node'), group: ofType('group') })
      }
    },
    ...owners.flatMap(type => ownerRoutes(parts, type, list, answer))
  ]
}

function ownerRoutes(
  { model }: Parts,
  type: SecretOwner,
  list: (type: SecretOwner, owner: string, caller: Caller) => Secret[],
  answer: (secrets: Partial<Record<SecretOwner, Record<string, readonly Secret[]>>>) => Answer
): ApiRoute[] {
  const base = `/config/secrets/${type}/{${type}}`
  const ownerOf = (request: ApiRequest) => model.get(type, param(request, type))
  // A node reads its own and its group's: what its install script places.
  const access = type === 'node' ? 'node' : 'user'
  const reads = { method: 'GET', effect: 'reads', body: 'ignored', codes: [200, 401, 403, 404] } as const
  const refusals = [400, 401, 403, 404, 503] as const
  const changes = { effect: 'changes', access: 'user', codes: [201, 204, ...refusals] } as const
  const one = (request: ApiRequest): Secret => {
    const { name } = ownerOf(request)
    const found = list(type, name, request.caller).find(entry => entry.name === param(request, 'secret'))
    if (!found) throw notFound(`${type} ${name} has no secret ${param(request, 'secret')}`)
    return found
  }
  const save = async (request: ApiRequest, given: readonly GivenSecret[]) => {
    const owner = param(request, type)
    const added = await model.change(actorOf(request), tx => {
      model.get(type, owner, tx)
      return putSecrets(tx, model.box, type, owner, given)
    })
    return done(added ? 201 : 204, `secrets of ${type} ${owner} created`)
  }
  const groupOf = (owner: string, caller: Caller) => {
    const group = type === 'node' ? model.view.get('node', owner)?.group : undefined
    return group === undefined ? undefined : { [group]: list('group', group, caller) }
  }
  const opened = (request: ApiRequest) => {
    const owner = param(request, type)
    const own = withoutGroup(request.body, groupOf(owner, request.caller))
    return open(own, 'config', ['secrets', type, owner])
  }
  const remove = async (request: ApiRequest) => {
    const owner = param(request, type)
    await model.change(actorOf(request), tx => {
      model.get(type, owner, tx)
      removeSecret(tx, type, owner, param(request, 'secret'))
    })
    return { status: 204 }
  }
  return [
    {
      ...reads,
      path: base,
      access,
      summary: type === 'node' ? "The secrets of a node, and its group's" : 'The secrets of a group',
      output: shapes.secrets,
      handler: request => {
        const doc = ownerOf(request)
        const own = { [type]: { [doc.name]: list(type, doc.name, request.caller) } }
        const group = groupOf(doc.name, request.caller)
        return answer(group ? { ...own, group } : own)
      }
    },
    {
      ...reads,
      path: `${base}/{secret}`,
      access,
      summary: `One secret of a ${type}`,
      output: shapes.secrets,
      handler: request => answer({ [type]: { [param(request, type)]: [one(request)] } })
    },
    {
      ...changes,
      method: 'POST',
      path: base,
      body: 'json',
      summary: `Add or change secrets of a ${type}`,
      input: shapes.secrets,
      handler: request => save(request, readSecrets(`${type} ${param(request, type)}`, opened(request)))
    },
    {
      ...changes,
      method: 'POST',
      path: `${base}/{secret}`,
      body: 'json',
      summary: `Add, change or rename a secret of a ${type}`,
      input: shapes.secrets,
      handler: request => save(request, [readOne(request, type, opened(request))])
    },
    {
      ...changes,
      method: 'POST',
      path: `${base}/{secret}/_clone`,
      body: 'json',
      codes: [201, ...refusals],
      summary: `Copy a secret of a ${type} under the name in newsecretname`,
      input: shapes.secrets,
      handler: async request => {
        const owner = param(request, type)
        const { newName, name, ...fields } = readOne(request, type, opened(request))
        if (newName === undefined)
          throw badRequest(`${type} ${owner}: secret ${name}: field "newsecretname" is missing`)
        await model.change(actorOf(request), tx => {
          model.get(type, owner, tx)
          cloneSecret(tx, type, owner, name, newName)
          putSecrets(tx, model.box, type, owner, [{ name: newName, ...fields }])
        })
        return done(201, `secret ${name} cloned to ${newName}`)
      }
    },
    ...(['GET', 'POST'] as const).map(
      (method): ApiRoute => ({
        ...changes,
        method,
        path: `${base}/{secret}/_delete`,
        body: 'ignored',
        codes: [204, ...refusals],
        summary: `Delete a secret of a ${type}`,
        handler: remove
      })
    )
  ]
}

/** A node's answer holds its group's secrets too: posted back, they are passed over where they are as read. */
function withoutGroup(body: JsonValue | undefined, group: object | undefined): JsonValue | undefined {
  if (!isObject(body) || !isObject(body.config) || !isObject(body.config.secrets)) return body
  const { group: given, ...own } = body.config.secrets
  if (given === undefined || !isDeepStrictEqual(given, group)) return body
  return { ...body, config: { ...body.config, secrets: own } }
}

/** The one secret that the path names: a list of one, an object, or an object without its name. */
function readOne(request: ApiRequest, type: SecretOwner, inner: JsonValue): GivenSecret {
  const owner = `${type} ${param(request, type)}`
  const name = param(request, 'secret')
  const entry = Array.isArray(inner) && inner.length === 1 ? inner[0] : inner
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry))
    throw badRequest(`${owner}: secret ${name}: the body must be one secret`)
  const [given] = readSecrets(owner, [{ name, ...entry }])
  if (given?.name !== name) throw badRequest(`${owner}: secret ${name}: field "name" is not ${name}`)
  return given
}
