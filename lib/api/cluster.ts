import { isDeepStrictEqual } from 'node:util'
import { isAdmin } from '../auth/access.js'
import { runFairly } from '../base/concurrency.js'
import { badRequest, notFound, ServiceError } from '../base/errors.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import type { Model } from '../model/model.js'
import {
  clusterFields,
  putSettings,
  readSettings,
  type SettingsPatch,
  settingNames
} from '../model/settings.js'
import {
  checkSecretsSliced,
  exportText,
  type ImportResult,
  importDocument,
  previewImport,
  snapshot
} from '../model/transfer.js'
import { objectTypes } from '../model/types.js'
import { NotLeaderError } from '../store/errors.js'
import type { Controller } from '../store/medium.js'
import { type ApiRequest, type ApiRoute, actorOf, ok, type Parts, param } from './context.js'
import { diskWarning, dryRunMessage } from './dry-run.js'
import { type Body, deletion, get, openEnvelope, post } from './row.js'
import { at, list, map, object, ref, string, word } from './schema.js'

const clusterSchema = at('config.cluster', {
  allOf: [ref('settings'), { type: 'object', description: 'and an object for each controller' }]
})

const secretsOfNames = map(list(ref('secret')))

/** An export: a section for each type, for the tags and for the secrets. */
const sections = at(
  'config',
  object({
    cluster: ref('settings'),
    ...Object.fromEntries(Object.values(objectTypes).map(({ type }) => [type, map(ref(type))])),
    osimagetag: map(ref('osimagetag')),
    secrets: object({ node: secretsOfNames, group: secretsOfNames })
  })
)

const names = list(string())
const touchedNames = object({ created: names, changed: names, deleted: names })

/** The cluster's settings and controllers, export and import (rules 1.1, 3.11, 3.15). */
export const clusterRoutes = (parts: Parts): ApiRoute[] => [
  ...settingsRoutes(parts),
  ...transferRoutes(parts)
]

/** The settings, and the removal of a controller. */
function settingsRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const settings: Body<SettingsPatch> = {
    schema: clusterSchema,
    read: request =>
      readSettings(changedSettings(openEnvelope(request, 'config.cluster'), parts), model.cluster)
  }
  return [
    get('/config/cluster', 'user', {
      summary: 'The cluster and its controllers',
      output: clusterSchema,
      handler: () => ok({ config: { cluster: shown(parts) } })
    }),
    post('/config/cluster', 'user', {
      answers: [204],
      summary: 'Change settings of the cluster',
      body: settings,
      handler: async (request, given) => {
        await model.change(actorOf(request), tx => putSettings(tx, model.ini, given))
        return { status: 204 }
      }
    }),
    ...deletion('/config/cluster/{controller}', 'user', {
      summary: 'Remove a controller that no longer runs',
      handler: async request => {
        const name = param(request, 'controller')
        const gone = parts.site?.gone.find(one => one.name === name)
        if (!(await parts.site?.forget(name))) throw notGone(name, parts)
        const change = { type: 'controller', name, before: gone, after: undefined }
        await parts.record(actorOf(request), [change], 'change')
        return { status: 204 }
      }
    })
  ]
}

/** Export, snapshot and import of everything that is configured. */
function transferRoutes({ model }: Parts): ApiRoute[] {
  const document: Body<JsonValue> = { schema: sections, read: request => openEnvelope(request, 'config') }
  return [
    get('/config/cluster/export', 'user', {
      refuses: [404],
      summary: 'Everything that is configured, as one document; secrets in the clear for an admin only',
      output: sections,
      handler: async request => ({ status: 200, json: await exported(model, request) })
    }),
    get('/config/cluster/snapshot', 'admin', {
      summary: 'Every object as its file holds it, secrets encrypted, all of one moment: for svcd backup',
      output: object({ snapshot: map(string('the text of the file')) }),
      handler: () => ({ status: 200, json: snapshot(model) })
    }),
    post('/config/cluster/import', 'user', {
      answers: [201, 200],
      refuses: [404],
      query: { dryrun: word('yes', 'no'), expect: string('the "mark" from the answer of a dry run') },
      summary:
        'Replace the sections that an exported document has; dryrun=yes only reports the changes; ' +
        'expect=MARK imports only if they are still the same',
      body: document,
      output: object({
        message: string('how many objects of each type'),
        changes: map(touchedNames),
        mark: string('of a dry run: identifies the changes, for expect')
      }),
      handler: async (request, given) => {
        if (isDryRun(request)) {
          const { changes, mark, felt } = await previewImport(model, given)
          const disks = await runFairly(diskWarning(await runFairly(felt(), request)), request)
          return ok({ message: `${dryRunMessage(countsOf(changes))}${disks}`, changes, mark })
        }
        const expected = request.query.get('expect') ?? undefined
        const changes = await importDocument(model, given, actorOf(request), expected)
        return { status: 201, body: { message: `imported: ${summaryOf(changes)}` } }
      }
    })
  ]
}

const notGone = (name: string, { config, site }: Parts): ServiceError =>
  [config.controller, ...(site?.others ?? [])].some(other => other.name === name)
    ? badRequest(
        `controller ${name} is running: stop its svcd, wait until its status is gone, then remove it`,
        'in-use'
      )
    : notFound(`there is no controller ${name} that is gone`, 'no-object')

function isDryRun({ query }: ApiRequest): boolean {
  const [given = 'no', ...more] = query.getAll('dryrun')
  if (more.length > 0 || !['yes', 'no'].includes(given))
    throw badRequest('import: dryrun must be yes or no', 'invalid-import')
  return given === 'yes'
}

const titles: Readonly<Record<string, { readonly title: string }>> = {
  ...objectTypes,
  osimagetag: { title: 'tag' }
}

const countsOf = (result: ImportResult) =>
  Object.entries(result).map(([section, touched]) => {
    const counts = Object.entries(touched).map(([what, names]) => [what, names.length] as const)
    return [section, counts] as const
  })

/** Counts the changes of an import: `node: 2 created, 1 deleted; switch: 1 changed`. */
function summaryOf(result: ImportResult): string {
  const sections = countsOf(result).map(([section, counts]) => {
    const told = counts.flatMap(([what, count]) => (count > 0 ? `${count} ${what}` : []))
    return `${titles[section]?.title ?? section}: ${told.join(', ')}`
  })
  return sections.join('; ') || 'nothing differs'
}

async function exported(model: Model, request: ApiRequest): Promise<Iterable<string>> {
  const masked = !isAdmin(request.caller)
  try {
    // Checked before the head of the answer, which has the status.
    if (!masked) await runFairly(checkSecretsSliced(model), request)
    return exportText(model, masked)
  } catch (error) {
    // A secret cannot be decrypted (rules 2.4: 404).
    throw error instanceof ServiceError
      ? notFound(`export failed: ${error.message}`, 'unreadable-secret')
      : error
  }
}

/** Controllers in the form of rules 1.1; `since`: the start of its absence. */
const controllerEntries = (
  status: 'primary' | 'standby' | 'gone',
  all: readonly (Pick<Controller, 'name' | 'address' | 'port' | 'ini'> & { readonly since?: string })[] = []
) =>
  Object.fromEntries(
    all.map(({ name, address: ipaddr, port: serverport, ini: svc_config, since }) => [
      name,
      { status, ipaddr, serverport, svc_config, ...(since === undefined ? {} : { since }) }
    ])
  )

/** Whether this controller led last, but does not know whether it still does (rules 11.15). */
const isInDoubt = (site: Parts['site']) => site?.status.role === 'unknown'

function shown({ config, model, site }: Parts): JsonObject {
  const settings = Object.fromEntries(settingNames.map(name => [name, model.cluster[name]]))
  const { variables } = model.cluster
  const own = { ...config.controller, port: config.http.listen.port, ini: config.file }
  return {
    name: config.cluster.name,
    ...controllerEntries('gone', site?.gone),
    // Only the leader answers this, or a controller in doubt: then no leader is known.
    ...controllerEntries(isInDoubt(site) ? 'standby' : 'primary', [own]),
    ...controllerEntries('standby', site?.others),
    ...settings,
    // Clients take every other object here for a controller.
    ...(Object.keys(variables).length > 0 ? { variables } : {})
  }
}

/** The settings in a posted cluster object; all else must be unchanged (rules 1.8, 2.4). */
function changedSettings(given: JsonValue, parts: Parts): JsonObject {
  const now = shown(parts)
  if (!isObject(given)) throw badRequest('cluster: the body must be an object', 'invalid-body')
  const settings: JsonObject = {}
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith('_')) continue
    const fixed = Object.hasOwn(now, key) && !clusterFields.some(({ name }) => name === key)
    if (!fixed) settings[key] = value
    else if (!isDeepStrictEqual(value, now[key])) {
      // A controller in doubt shows itself as a standby: then the values differ for that reason.
      if (isInDoubt(parts.site)) throw new NotLeaderError('no controller is known to write for the moment')
      throw badRequest(`cluster: "${key}" cannot be changed here`, 'invalid-field')
    }
  }
  return settings
}
