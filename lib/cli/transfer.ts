import { createReadStream, existsSync } from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { Tokens } from '../auth/tokens.js'
import { strictUtf8 } from '../base/json.js'
import { escapeControls, firstOf } from '../base/log.js'
import { originAt, requestWhole } from '../client/request.js'
import type { Config } from '../config/types.js'
import { isWildcard } from '../config/values.js'
import { fromLuna2 } from '../imports/luna2.js'
import type { Plan } from '../imports/plan.js'
import { countObjects, participles } from '../model/types.js'
import { confirmed } from './ask.js'
import { UsageError } from './usage.js'

/** Prints the export of the running daemon. Throws Error if it cannot. */
export async function exportTo(config: Config, out: NodeJS.WritableStream): Promise<void> {
  const document = await askDaemon(config, 'GET', '/config/cluster/export')
  // The program ends after this, so it waits for the pipe to take everything.
  await new Promise<void>((resolve, reject) => {
    out.write(document, error => (error ? reject(error) : resolve()))
  })
}

/**
 * Imports a document (`-`: standard input), or a file of another `system`, into the running daemon; returns
 * its message. Without `yes` it shows the changes and asks. Throws UsageError where there is no terminal.
 */
export async function importFrom(config: Config, file: string, yes: boolean, system?: OtherSystem) {
  const given = await contentOf(file)
  const document = system === undefined ? given : await converted(file, given, system)
  return send(config, '/config/cluster/import?', document, yes, differences)
}

/** Systems whose files `svcd import` reads; each function gives the document and what it lacks. */
const systems = {
  luna2: async (text: string) => {
    const { config, leftOut } = fromLuna2(JSON.parse(text))
    return { document: { config }, told: leftOut.map(line => `left out: ${line}`) }
  },
  warewulf: async (text: string) => planned(text, (await import('../imports/warewulf.js')).readWarewulf),
  xcat: async (text: string) => planned(text, (await import('../imports/xcat.js')).readXcat)
}
export type OtherSystem = keyof typeof systems

async function planned(text: string, read: (text: string, plan: Plan) => void) {
  const { Plan } = await import('../imports/plan.js')
  const plan = new Plan()
  read(text, plan)
  return { document: plan.document(), told: plan.notes }
}

/** Bytes of the largest file of another system. */
const mostBytes = 64 * 1024 * 1024

async function converted(file: string, given: Buffer, system: OtherSystem): Promise<Buffer> {
  try {
    const text = given.length > mostBytes ? undefined : strictUtf8(given)
    if (text === undefined)
      throw new Error(given.length > mostBytes ? 'is larger than 64 MiB' : 'is no text in UTF-8')
    const { document, told } = await systems[system](text)
    process.stderr.write(told.map(line => `${escapeControls(line)}\n`).join(''))
    return Buffer.from(JSON.stringify(document))
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`)
  }
}

/** Creates and changes nodes from a CSV file (`-`: standard input); asks and throws as `importFrom` does. */
export async function importTable(config: Config, file: string, yes: boolean): Promise<string> {
  return send(config, '/config/node?format=csv&', await contentOf(file), yes, (found: TableDryRun) => {
    const lines = found.changes.slice(0, mostNames).map(({ type, name, action, fields }) => {
      const told = fields.map(({ field, before, after }) => `${field} ${shown(before)} -> ${shown(after)}`)
      return `${type} ${name} would be ${participles[action] ?? action}: ${told.join(', ')}`
    })
    const more = found.changes.length - mostNames
    return more > 0 ? [...lines, `and ${more} more`] : lines
  })
}

const shown = (value: unknown) => (value === null ? '-' : JSON.stringify(value))

const contentOf = (file: string): Promise<Buffer> =>
  buffer(file === '-' ? process.stdin : createReadStream(file)).catch(
    ({ code, message }: NodeJS.ErrnoException) => {
      throw new Error(
        `${file}: ${code === 'ENOENT' ? 'there is no such file' : `cannot be read: ${message}`}`
      )
    }
  )

/** Sends a document; without `yes` it first shows the lines of the dry run, and asks. */
async function send<T extends { readonly mark: string }>(
  config: Config,
  path: string,
  document: Buffer,
  yes: boolean,
  linesOf: (found: T) => readonly string[]
): Promise<string> {
  const post = (more: string) => askDaemon(config, 'POST', `${path}${more}`.replace(/[?&]$/, ''), document)
  if (yes) return messageOf(await post(''))
  const found = JSON.parse(String(await post('dryrun=yes'))) as T
  const lines = linesOf(found)
  if (lines.length === 0) return 'nothing differs'
  process.stderr.write(lines.map(line => `${line}\n`).join(''))
  if (!process.stdin.isTTY)
    throw new UsageError('nothing was imported: there is no terminal to ask on, use --yes')
  if (!(await confirmed('Import this? [y/N] '))) throw new Error('nothing was imported')
  // A booting machine may change the stored objects while the question waits.
  return messageOf(await post(`expect=${found.mark}`))
}

const mostNames = 20

interface TableDryRun {
  /** Digest of the objects and addresses that would change. */
  readonly mark: string
  readonly changes: readonly {
    readonly type: string
    readonly name: string
    readonly action: string
    readonly fields: readonly { readonly field: string; readonly before: unknown; readonly after: unknown }[]
  }[]
}

/** The dry run of an import: object names by type and kind of change. */
interface DryRun {
  /** Digest of the objects that would be replaced. */
  readonly mark: string
  readonly changes: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>
}

const differences = ({ changes }: DryRun): string[] =>
  Object.entries(changes).flatMap(([type, touched]) =>
    Object.entries(touched).flatMap(([what, names]) => {
      const which = countObjects(type, names.length)
      return names.length > 0 ? [`${which} would be ${what}: ${firstOf(names, mostNames)}`] : []
    })
  )

/** Sends a request to the daemon with an admin's token, signed with its key. Throws Error if it fails. */
export async function askDaemon(config: Config, method: string, path: string, body?: Buffer) {
  const { address, port } = config.http.listen
  const host = isWildcard(address) ? (address.includes(':') ? '::1' : '127.0.0.1') : address
  // A key that was created here would belong to this user, not to the daemon.
  if (!existsSync(join(config.paths.state, 'token.key'))) throw new Error(notStarted(config.paths.state))
  const tokens = await Tokens.open(config.paths.state, {
    now: Date.now,
    lifetimeMs: 60_000,
    nodeLifetimeMs: 60_000
  })
  const admin = config.users.length === 0 ? 'admin' : config.users.find(({ role }) => role === 'admin')?.name
  if (admin === undefined) throw new Error(`${config.file}: [users] names no admin`)
  const { status, body: answer } = await requestWhole({
    ...{ url: originAt('http', host, port), method, path, body, most: Number.POSITIVE_INFINITY },
    headers: {
      'x-access-tokens': tokens.issueUser({ user: admin, grant: { role: 'admin' }, source: 'local' })
    }
  }).catch(error => {
    throw new Error(`no svcd answers at ${host} port ${port}: ${error.message}`)
  })
  if (status >= 400) throw new Error(messageOf(answer))
  return answer
}

const messageOf = (body: Buffer) =>
  String((JSON.parse(body.toString('utf8')) as { message?: unknown }).message)

/** The message for a state directory without a state, with the usual reason. */
export const notStarted = (state: string): string =>
  `${state}: no svcd has been started on this state directory; one that was started with --config or --set ` +
  'needs the same options here'
