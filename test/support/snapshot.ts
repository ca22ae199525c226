import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Controller } from './controller.js'
import { neverTheSame } from './routes.js'
import { storedTexts } from './stored-texts.js'

/** The export of a controller: stored values, section → name → fields. */
export type Exported = Readonly<Record<string, Readonly<Record<string, Fields>>>>
export type Fields = Readonly<Record<string, unknown>> & {
  readonly name: string
  readonly interfaces?: readonly Nic[]
  readonly removed?: readonly string[]
}
export interface Nic {
  readonly interface: string
  readonly network?: string
  readonly ipaddress?: string
  readonly macaddress?: string
  readonly own?: true
}

/**
 * Every file of the state: path → content, of an audit log or a key its size. What the log promises counts
 * as written.
 */
export function snapshot(c: Controller): Record<string, string | number> {
  const state = join(c.directory, 'state')
  const sizes = readdirSync(state, { withFileTypes: true })
    .filter(entry => entry.isFile() && entry.name !== 'holder.json')
    .map(({ name }) => [name, statSync(join(state, name)).size] as const)
  const texts = Object.entries(storedTexts(state)).filter(([path]) => !path.startsWith('jobs/'))
  return { ...Object.fromEntries(sizes), ...Object.fromEntries(texts) }
}

/**
 * The files of objects alone, without the notes of which node tokens are void, and of how nodes were handed
 * over.
 */
export function objectFiles(c: Controller): Record<string, string> {
  return Object.fromEntries(Object.entries(c.state()).filter(([path]) => !/^(revoked|handover)\//.test(path)))
}

/** The objects have no prototype: one of their keys may be `constructor`. */
export const parseBare = (text: string) =>
  JSON.parse(text, (_, value) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.assign(Object.create(null), value)
      : value
  )

/** What a controller exports now. */
export async function exported(c: Controller): Promise<{ text: string; config: Exported }> {
  const { status, text } = await c.get('/config/cluster/export')
  if (status !== 200) throw new Error(`export: ${status} ${text}`)
  return { text, config: parseBare(text).config }
}

const nicsOf = ({ interfaces = [] }: Partial<Fields>) => interfaces
/** The secrets of a node or a group in an export. */
export const secretsOf = (config: Exported, type: string, owner = '') =>
  (config.secrets?.[type] as unknown as Record<string, { name: string }[]> | undefined)?.[owner] ?? []

/** What each path parameter may be, given those before it. */
function choices(config: Exported, name: string, given: Readonly<Record<string, string>>): string[] {
  const all = (type: string) => Object.keys(config[type] ?? {})
  const docs = [...['node', 'switch', 'otherdev'].flatMap(type => Object.values(config[type] ?? {}))]
  const nics = docs.flatMap(doc => [doc as unknown as Nic, ...nicsOf(doc)])
  const files = (...fields: string[]) =>
    [...Object.values(config.osimage ?? {}), ...Object.values(config.osimagetag ?? {})].flatMap(image =>
      fields.flatMap(field => (image[field] === undefined ? [] : String(image[field])))
    )
  const [type, owner] = given.node === undefined ? ['group', given.group] : ['node', given.node]
  const of: Readonly<Record<string, () => string[]>> = {
    groupname: () => all('group'),
    hostname: () => all('node'),
    interface: () => nicsOf(config[type]?.[owner ?? ''] ?? {}).map(nic => nic.interface),
    secret: () => secretsOf(config, type, owner).map(secret => secret.name),
    ipaddress: () => nics.flatMap(nic => nic.ipaddress ?? []),
    macaddress: () => ['02:00:00:00:00:00', ...nics.flatMap(nic => nic.macaddress ?? [])],
    file: () => files('kernelfile', 'initrdfile'),
    tarball: () => files('imagefile'),
    role: () => ['none'],
    script: () => ['none'],
    service: () => ['svcd']
  }
  return [...new Set((of[name] ?? (() => all(name)))())]
}

const changing =
  /\/_(?:delete|pack|cancel|release|seen)$|^\/service\/d\w+\/(?!status)|^\/boot\/manual\/.*\{macaddress\}$/

/** The paths of every GET that only reads, with the names that exist. What the monitor tells comes last. */
function paths(config: Exported, table: readonly string[]): string[] {
  const ordered = table.filter(path => !changing.test(path))
  return [
    ...ordered.filter(path => !path.startsWith('/monitor')),
    ...ordered.filter(path => path.startsWith('/monitor'))
  ].flatMap(path => {
    const params = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as string)
    let filled: { path: string; given: Record<string, string> }[] = [{ path, given: {} }]
    for (const name of params)
      filled = filled.flatMap(({ path, given }) =>
        choices(config, name, given).map(value => ({
          path: path.replace(`{${name}}`, value),
          given: { ...given, [name]: value }
        }))
      )
    return filled.map(({ path }) => path)
  })
}

/**
 * Without what differs with the time of asking and not with the state: tokens, when a node was heard of (it
 * may have the address that the test asks from), and since when the daemon runs.
 */
const timeless = (path: string, text: string) =>
  // To look at the beginning of each line takes long.
  (text.includes('_TOKEN=') ? text.replaceAll(/^(SVC|FILES)_TOKEN=.*$/gm, '$1_TOKEN=') : text)
    .replaceAll(/"seen":"[^"]*"/g, '')
    .replaceAll(/^\/monitor\/(service|status)/.test(path) ? /"since":"[^"]*"/g : '', '')
    .replaceAll(/^\/monitor\/unknown/.test(path) ? /"(first|last|count)":("[^"]*"|\d+)/g : '', '')

/**
 * A loopback address that no node has: to ask from a node's is to be heard of, which changes what the next
 * answers say, and settings may refuse a boot script to other addresses.
 */
function nobodys({ node = {} }: Exported): string {
  const taken = new Set(Object.values(node).flatMap(each => nicsOf(each).map(nic => nic.ipaddress)))
  for (let last = 1; ; last++) if (!taken.has(`127.0.0.${last}`)) return `127.0.0.${last}`
}

/**
 * The answer of every GET, path → status and text, as the admin; install scripts as the node. Left out are
 * those that answer otherwise each time.
 */
export async function everything(c: Controller): Promise<Map<string, string>> {
  const { body } = await c.get('/openapi.json')
  const table = Object.entries<Record<string, unknown>>(body.paths).flatMap(([path, methods]) =>
    methods.get && !neverTheSame.test(path) ? path : []
  )
  const { config } = await exported(c)
  const stranger = nobodys(config)
  const answers = new Map<string, string>()
  for (const path of paths(config, table)) {
    const node = /^\/boot\/install\/(.+)$/.exec(path)?.[1]
    const source = nicsOf(config.node?.[node ?? ''] ?? {}).find(nic => nic.ipaddress)?.ipaddress
    const { status, text } = await c.get(path, { source: source ?? stranger })
    answers.set(path, `${status} ${timeless(path, text)}`)
  }
  return answers
}
