import { isAdmin } from '../auth/access.js'
import { badRequest, notFound, ServiceError } from '../errors.js'
import type { JsonObject, JsonValue } from '../json.js'
import type { Model } from '../model/model.js'
import { putSettings, readSettings, settingNames } from '../model/settings.js'
import { exportText } from '../model/transfer.js'
import { type ApiRoute, actorOf, type Parts } from './context.js'
import { open } from './envelope.js'
import { shapes } from './shapes.js'

/** The cluster's settings and its controller, export and import (rules 1.1, 3.11, 3.15). */
export function clusterRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  return [
    {
      method: 'GET',
      path: '/config/cluster',
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401, 503],
      summary: 'The cluster and its controllers',
      output: shapes.cluster,
      handler: () => ({ status: 200, body: { config: { cluster: shown(parts) } } })
    },
    {
      method: 'POST',
      path: '/config/cluster',
      effect: 'changes',
      access: 'user',
      body: 'json',
      codes: [204, 400, 401, 403, 503],
      summary: 'Change settings of the cluster',
      input: shapes.cluster,
      handler: async request => {
        const settings = readSettings(changeable(open(request.body, 'config', ['cluster']), shown(parts)))
        await model.change(actorOf(request), tx => putSettings(tx, model.ini, settings))
        return { status: 204 }
      }
    },
    {
      method: 'GET',
      path: '/config/cluster/export',
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401, 404, 503],
      summary: 'Everything that is configured, as one document; secrets in the clear for an admin only',
      output: shapes.transfer,
      handler: request => ({ status: 200, json: exported(model, !isAdmin(request.caller)) })
    },
    {
      method: 'POST',
      path: '/config/cluster/import',
      effect: 'changes',
      access: 'user',
      body: 'json',
      codes: [201, 400, 401, 403, 404, 503],
      summary: 'Replace the sections of an exported document that are present',
      input: shapes.transfer,
      handler: async request => {
        await parts.images.import(open(request.body, 'config', []), actorOf(request))
        return { status: 201, body: { message: 'imported' } }
      }
    }
  ]
}

function exported(model: Model, masked: boolean): string[] {
  try {
    return [...exportText(model, masked)]
  } catch (error) {
    // A secret that cannot be decrypted (rules 2.4: 404).
    throw error instanceof ServiceError ? notFound(`export failed: ${error.message}`) : error
  }
}

function shown({ config, model }: Parts): JsonObject {
  const settings = Object.fromEntries(settingNames.map(name => [name, model.cluster[name]]))
  const { name, address } = config.controller
  return {
    name: config.cluster.name,
    [name]: {
      status: 'primary',
      ipaddr: address,
      serverport: config.http.listen.port,
      svc_config: config.file
    },
    ...settings
  }
}

/** The settings among what is given; the rest may only be what is read (rules 1.8, 2.4). */
function changeable(given: JsonValue, now: JsonObject): JsonObject {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw badRequest('cluster: the body must be an object')
  const settings: JsonObject = {}
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith('_')) continue
    const fixed = Object.hasOwn(now, key) && !settingNames.some(name => name === key)
    if (!fixed) settings[key] = value
    else if (!sameJson(value, now[key])) throw badRequest(`cluster: "${key}" cannot be changed here`)
  }
  return settings
}

/** Equal whatever the order of the keys. */
function sameJson(a: JsonValue | undefined, b: JsonValue | undefined): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b
  const [x, y] = [Object.entries(a), new Map(Object.entries(b))]
  return x.length === y.size && x.every(([key, value]) => sameJson(value, y.get(key)))
}
