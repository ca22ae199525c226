import { setTimeout as wait } from 'node:timers/promises'
import { type JsonObject, type JsonValue, objectsIn, strictUtf8, within } from '../base/json.js'
import type { TypeName } from '../model/docs.js'
import { base64, secretMask } from '../model/field.js'
import { secretEntry } from '../model/secrets.js'
import type { Query } from './controller.js'
import { dryRunLines } from './render.js'
import { changeOptions, type Session, type Verb, type Verbs } from './session.js'
import { clean, cleanLines, refused, wrongUsage } from './terminal.js'
import { bodyOf, type ReadText } from './values.js'

const shortestPauseMs = 100
const longestPauseMs = 1000
const barWidth = 30
const textWidth = 40

/** Polls a request at `path` until it ends; returns its last answer. `told` gives the text of the bar. */
export async function pollRequest(
  session: Session,
  path: string,
  first: JsonObject,
  told: (answer: JsonObject) => string
): Promise<JsonObject> {
  const { terminal, format, controller } = session
  const hasBar = terminal.shows.err && format === 'text'
  let answer = first
  for (let pause = shortestPauseMs; ; pause = Math.min(pause * 1.5, longestPauseMs)) {
    const bar = barOf(answer.progress, told(answer))
    if (hasBar) terminal.err(bar)
    if (answer.state === 'done' || answer.state === 'failed') break
    await wait(pause)
    answer = await controller.json('GET', path)
  }
  if (hasBar) terminal.err('\r\u001b[K')
  return answer
}

function barOf(progress: JsonValue | undefined, text: string): string {
  const share = typeof progress === 'number' ? Math.min(Math.max(progress, 0), 1) : 0
  const full = Math.round(share * barWidth)
  const bar = `${'#'.repeat(full)}${' '.repeat(barWidth - full)}`
  return `\r[${bar}] ${clean(text).slice(0, textWidth).padEnd(textWidth)}`
}

/** Returns the answer of a change or of its asynchronous request. Throws Failure 1 if that failed. */
export async function awaitResult(session: Session, answer: JsonObject): Promise<JsonObject> {
  const { request_id: id } = answer
  if (typeof id !== 'string') return answer
  const lines: string[] = []
  const path = `/config/status/${encodeURIComponent(id)}`
  const { state = null } = await pollRequest(session, path, answer, ({ message }) => {
    if (typeof message === 'string' && message !== '') lines.push(...message.split(';;'))
    return lines.at(-1) ?? ''
  })
  if (state === 'failed') throw refused(lines.at(-1) ?? `request ${id} has failed`)
  return { request_id: id, state, lines }
}

/** Makes a change, or its dry run, waits for its end and shows the answer, or `done` if it has no text. */
export async function makeChange(
  session: Session,
  path: string,
  body: JsonObject | Buffer | undefined,
  done: string | (() => Promise<string>),
  method: 'GET' | 'POST' = 'POST',
  more: Query = {}
): Promise<void> {
  const { controller, options, format, paint } = session
  session.refuseCsv()
  const query = options.dryrun ? { ...more, dryrun: 'yes' } : more
  const answer = await awaitResult(session, await controller.json(method, path, query, body))
  session.showWarnings()
  if (!options.dryrun || format === 'json')
    return session.changed(answer, typeof done === 'string' ? done : await done())
  const { lines } = answer
  await session.lines(Array.isArray(lines) ? lines.map(String).map(clean) : dryRunLines(answer, paint))
}

/** Reads the texts of `@FILE` and `-`. Throws Failure 2 if standard input is needed twice. */
export function reader({ terminal }: Session): ReadText {
  let isRead = false
  return async (place, { name, secret }) => {
    if (place !== '-') return terminal.file(place)
    if (secret && terminal.shows.in) return Buffer.from(await terminal.hidden(`${name}: `))
    if (isRead) throw wrongUsage(`${name}=-: one field alone can be read from standard input`)
    isRead = true
    return terminal.input()
  }
}

const only = ['node', 'group'] as const

/** The fields of a secret. Its content is typed as text and sent in base64. */
const described = {
  title: 'secret',
  fields: secretEntry
    .filter(({ name }) => name !== 'name' && name !== 'newsecretname')
    .map(field => (field.name === 'content' ? { ...field, type: base64 } : field)),
  newName: ['newsecretname']
}

const pathOf = (type: TypeName, owner: string, ...secret: string[]) =>
  ['/config/secrets', type, ...[owner, ...secret].map(encodeURIComponent)].join('/')

/** Secrets of nodes and groups: files that the installation places. */
export const secretVerbs: Verbs = {
  secrets: {
    operands: 'NAME',
    summary: "the names of its secrets; of a node also its group's",
    options: ['output'],
    onlyTypes: only,
    async run(session, type, [owner = '']) {
      session.refuseCsv()
      const answer = await session.controller.json('GET', pathOf(type, owner))
      if (session.format === 'json') return session.json(answer)
      const lines = secretsIn(answer).map(({ of, name, path }) => `${of}  ${name}  ${path}`)
      await session.lines(lines.map(clean))
    }
  },
  secret: {
    operands: 'NAME SECRET',
    summary: 'print a secret, for an admin',
    options: ['output'],
    onlyTypes: only,
    async run(session, type, [owner = '', wanted = '']) {
      session.refuseCsv()
      const answer = await session.controller.json('GET', pathOf(type, owner, wanted))
      if (session.format === 'json') return session.json(answer)
      const [{ content } = { content: secretMask }] = secretsIn(answer)
      if (content === secretMask) throw refused(`only an admin may read secret ${wanted}`)
      const text = strictUtf8(Buffer.from(content, 'base64'))
      if (text === undefined) throw refused(`secret ${wanted} is no text: -o json shows it in base64`)
      await session.terminal.out(session.terminal.shows.out ? cleanLines(text) : text)
    }
  },
  setsecret: {
    operands: 'NAME SECRET [content=@FILE|-] [path=PATH]',
    count: [3, Number.POSITIVE_INFINITY],
    summary: 'add, change or rename (newsecretname=) a secret',
    options: changeOptions,
    onlyTypes: only,
    async run(session, type, [owner = '', secret = '', ...words]) {
      const body = await bodyOf(described, words, reader(session))
      const done = `secret ${secret} of ${type} ${owner} stored`
      await makeChange(session, pathOf(type, owner, secret), body, done)
    }
  },
  rmsecret: {
    operands: 'NAME SECRET',
    summary: 'delete a secret',
    options: changeOptions,
    onlyTypes: only,
    run(session, type, [owner = '', secret = '']) {
      const done = `secret ${secret} of ${type} ${owner} deleted`
      return makeChange(session, `${pathOf(type, owner, secret)}/_delete`, undefined, done)
    }
  }
}

function secretsIn(answer: JsonObject) {
  return Object.entries(within(answer, 'config', 'secrets')).flatMap(([type, owners]) =>
    Object.entries(within(owners)).flatMap(([owner, list]) =>
      objectsIn(list).map(({ name, path, content }) => ({
        of: `${type} ${owner}`,
        ...{ name: String(name), path: String(path ?? '-'), content: String(content) }
      }))
    )
  )
}

const tablePath = '/config/node'
const tableQuery = { format: 'csv' }

/** Asks what a table of nodes would change. */
export const dryRunOfTable = ({ controller }: Session, table: Buffer): Promise<JsonObject> =>
  controller.json('POST', tablePath, { ...tableQuery, dryrun: 'yes' }, table)

/** Creates and changes nodes by a table, all or none (rules 12.8); shows the changes and asks first. */
export const importVerb: Verb<''> = {
  operands: 'FILE',
  summary: 'create and change nodes by a table in CSV; - is standard input',
  options: ['output', 'dryrun', 'yes'],
  async run(session, _type, [file = '']) {
    const { terminal, options, paint } = session
    const table = file === '-' ? await terminal.input() : await terminal.file(file)
    if (options.dryrun || options.yes) return importTable(session, table, 'imported')
    const told = await dryRunOfTable(session, table)
    if (Array.isArray(told.changes) && told.changes.length === 0)
      return session.changed({}, 'nothing differs')
    terminal.err([...dryRunLines(told, paint), ''].join('\n'))
    await session.confirm('Import this?', 'nothing was imported')
    await importTable(session, table, 'imported', told)
  }
}

/**
 * Imports a table; with `told`, only if it would still change what its dry run told: a person takes time.
 * `done` says in a word what was done.
 */
export function importTable(session: Session, table: Buffer, done: string, told: JsonObject = {}) {
  const expect = typeof told.mark === 'string' ? told.mark : undefined
  return makeChange(session, tablePath, table, done, 'POST', { ...tableQuery, expect })
}
