import { type JsonObject, type JsonValue, within } from '../base/json.js'
import type { TypeName } from '../model/docs.js'
import type { Controller, Query } from './controller.js'
import {
  clean,
  cleanLines,
  noController,
  type Paint,
  paintFor,
  refused,
  type Terminal,
  wrongUsage
} from './terminal.js'

export const formats = ['text', 'json', 'csv', 'yaml'] as const
/** The format that is requested. YAML is made from JSON here. */
type Format = Exclude<(typeof formats)[number], 'yaml'>

/** One run of the client: its controller, terminal and options. */
export class Session {
  readonly paint: Paint

  constructor(
    readonly terminal: Terminal,
    readonly controller: Controller,
    readonly options: Options,
    readonly format: Format
  ) {
    this.paint = paintFor(terminal, 'out')
  }

  /** Writes lines that are already safe for a terminal. */
  async lines(lines: Iterable<string>): Promise<void> {
    let text = ''
    for (const line of lines) {
      text += `${line}\n`
      if (text.length < 65_536) continue
      await this.terminal.out(text)
      text = ''
    }
    await this.terminal.out(text)
  }

  /** Writes a value as JSON or YAML: indented on a terminal, else on one line. */
  async json(value: JsonValue): Promise<void> {
    const { out } = this.terminal.shows
    if (this.options.output === 'yaml')
      return this.lines([...yamlLines(value)].map(line => (out ? clean(line) : line)))
    return this.terminal.out(`${cleanLines(JSON.stringify(value, null, out ? 2 : undefined))}\n`)
  }

  /** Writes lines of CSV; programs get them unchanged. */
  csv(lines: Iterable<string>): Promise<void> {
    const text = [...lines, ''].join('\n')
    return this.terminal.out(this.terminal.shows.out ? cleanLines(text.replaceAll('\r', '')) : text)
  }

  /** Streams a list that the controller renders (rules 14.4). Throws Failure 3 for another content type. */
  async rendered(path: string, query: Query): Promise<void> {
    const { terminal, format, options, controller } = this
    const { out } = terminal.shows
    const { fields, sort } = options
    const asked = { ...query, fields: fields ?? query.fields, sort }
    if (options.output === 'yaml') return this.json(await controller.json('GET', path, asked))
    const pretty = format === 'json' && out ? 'yes' : undefined
    const answer = await controller.send('GET', path, { ...asked, format, pretty })
    // Another web server would answer with a page.
    if (!String(answer.response.headers['content-type'] ?? '').startsWith(types[format]))
      throw noController(`no svcd at ${controller.name}: what is there does not answer in ${types[format]}`)
    // Programs get JSON and CSV unchanged.
    const shown = (piece: string) =>
      format !== 'text' && !out ? piece : cleanLines(piece.replaceAll('\r', ''))
    let isBegun = false
    let last = '\n'
    for await (const piece of answer.pieces()) {
      const text = shown(piece)
      if (text === '') continue
      last = text.at(-1) as string
      const end = isBegun || format !== 'text' ? -1 : text.indexOf('\n')
      await terminal.out(end < 0 ? text : `${this.paint('bold', text.slice(0, end))}${text.slice(end)}`)
      isBegun = true
    }
    if (last !== '\n') await terminal.out('\n')
  }

  /** Shows the answer of a change, or `done` if it has no text. */
  changed(answer: JsonObject, done: string): Promise<void> {
    const { message } = answer
    const text = typeof message === 'string' ? message : done
    return this.format === 'json' ? this.json({ message: text, ...answer }) : this.lines([clean(text)])
  }

  /** Asks, unless `--yes` is given. Throws Failure 1 if the answer is no, 2 without a terminal. */
  async confirm(question: string, nothing: string, why = 'there is no terminal to ask on, use --yes') {
    const { terminal, options } = this
    if (options.yes) return
    // `nothing` says in a sentence that nothing was done, `why` tells why nobody can be asked.
    if (!terminal.shows.in) throw wrongUsage(`${nothing}: ${why}`)
    if (!(await terminal.confirmed(clean(`${question} [y/N] `)))) throw refused(nothing)
  }

  /** Shows the warnings of the controller that were not shown yet, each once. */
  showWarnings(): void {
    for (const warning of new Set(this.controller.warnings.splice(0)))
      this.terminal.err(`warning: ${clean(warning)}\n`)
  }

  /** Throws Failure 2 if CSV is wanted, which the controller does not make of everything. */
  refuseCsv(): void {
    if (this.format === 'csv') throw wrongUsage('there is no CSV of this: -o takes text or json')
  }

  /** Resolves a name or node set to the names of its nodes, each once. */
  async nodes(set: string): Promise<string[]> {
    const all = new Set<string>()
    for (const nodes of splitUnion(set)) {
      const answer = await this.controller.json('GET', '/config/node', { nodes, fields: 'name' })
      for (const name of Object.keys(within(answer, 'config', 'node'))) all.add(name)
    }
    return [...all]
  }
}

/** Writes a text as a cell of CSV. */
export const csvCell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

/** Characters of a node set in one URL. */
const mostOfSet = 8192

/** Splits a long set that is joined by commas alone into several sets. */
export function splitUnion(set: string): string[] {
  if (set.length <= mostOfSet || /[!&^]/.test(set)) return [set]
  const all: string[] = []
  for (const one of set.match(/(?:\[[^\]]*\]?|[^,[])+/g) ?? []) {
    const last = all.at(-1)
    if (last !== undefined && last.length + one.length < mostOfSet / 2) all[all.length - 1] = `${last},${one}`
    else all.push(one)
  }
  return all
}

const types: Readonly<Record<Format, string>> = {
  text: 'text/plain',
  csv: 'text/csv',
  json: 'application/json'
}

/** A command on the objects of a type. */
export interface Verb<T extends string = TypeName> {
  /** The operands in the help; those in brackets are optional. */
  readonly operands: string
  /** The least and most operands, where `operands` does not tell. */
  readonly count?: readonly [number, number]
  readonly summary: string
  /** A second name, familiar from other programs. */
  readonly alias?: string
  /** Its options besides the common ones. */
  readonly options?: readonly (keyof Options)[]
  /** The types that have it; absent: all. */
  readonly onlyTypes?: readonly T[]
  /** The allowed last operands. */
  readonly actions?: readonly string[]
  /** Whether it takes FIELD=VALUE words. */
  readonly assigns?: true
  run(session: Session, type: T, operands: readonly string[]): Promise<void>
}

export type Verbs<T extends string = TypeName> = Readonly<Record<string, Verb<T>>>

/** Returns the least and most operands of a verb. */
export function countOf({ operands, count }: Pick<Verb, 'operands' | 'count'>): readonly [number, number] {
  const words = operands.split(' ').filter(word => word !== '')
  const needed = words.filter(word => !word.startsWith('['))
  return count ?? [needed.length, operands.endsWith('...') ? Number.POSITIVE_INFINITY : words.length]
}

export const listOptions = ['output', 'fields', 'sort'] as const
export const changeOptions = ['output', 'dryrun'] as const

/** Indexes verbs by both their names. */
export const byName = <T extends string>(table: Verbs<T>) =>
  new Map(
    Object.entries(table).flatMap(([name, verb]) =>
      [name, verb.alias ?? []].flat().map(key => [key, verb] as const)
    )
  )

/** Returns the encoded path of an object. */
export const pathOf = (type: TypeName, name: string) => `/config/${type}/${encodeURIComponent(name)}`

/** Strings that need no quotes in YAML 1.1 or 1.2: never numbers, dates, booleans or comments. */
const plainWord = /^(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_/][\w./-]*(?: [\w./-]+)*$/i
/** Texts that fit a block scalar: no control characters, no first line of blanks alone. */
const inLines = /^(?!\s*$)[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*(?:\n[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*)+$/u

/** Yields a value as YAML that every parser reads like its JSON. */
export function* yamlLines(value: JsonValue, indent = ''): Generator<string> {
  if (Array.isArray(value) && value.length > 0)
    for (const one of value) {
      let lead = `${indent}- `
      // Further lines of an entry are aligned with its first line.
      for (const line of yamlLines(one, `${indent}  `)) {
        yield line === '' ? line : lead + line.slice(lead.length)
        lead = `${indent}  `
      }
    }
  else if (typeof value === 'object' && value !== null && Object.keys(value).length > 0)
    for (const [name, one] of Object.entries(value)) {
      const [first = '', ...rest] = yamlLines(one, `${indent}  `)
      const isBlock = typeof one === 'object' && one !== null && Object.keys(one).length > 0
      const lead = `${indent}${plainWord.test(name) ? name : quoted(name)}:`
      yield isBlock ? lead : `${lead} ${first.trimStart()}`
      if (isBlock) yield first
      yield* rest
    }
  else if (typeof value === 'string' && inLines.test(value)) {
    const end = value.endsWith('\n\n') ? '+' : value.endsWith('\n') ? '' : '-'
    yield `${indent}|${/^\s/.test(value) ? '2' : ''}${end}`
    for (const line of value.replace(/\n$/, '').split('\n')) yield line === '' ? line : `${indent}${line}`
  } else if (typeof value === 'string') yield indent + (plainWord.test(value) ? value : quoted(value))
  else yield indent + JSON.stringify(value)
}

/** Quotes a string as JSON, and escapes characters that YAML rejects or takes for line ends. */
const quoted = (text: string) =>
  JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff]/g,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  )

/** An option with a value; `takes` names the value in the help. */
const value = (takes: string, about: string) => ({ type: 'string', takes, about }) as const

const flag = (about: string) => ({ type: 'boolean', takes: '', about }) as const

/** All options in the order of the help, as parseArgs takes them. Help and completion use this table. */
export const optionTable = {
  url: value('URL', 'where the controller is; default: SVCD_URL, else http://127.0.0.1:7050'),
  cacert: value('FILE', 'the CA that signed the certificate of an https URL; default: SVCD_CACERT'),
  output: { ...value('FORMAT', 'text (default), json, csv or yaml'), short: 'o' },
  fields: value('A,B', 'list, show, status: these fields alone; BOOTIF.ipaddress is one of an interface'),
  sort: value('A,-B', 'list, status: by these fields; - sorts downwards'),
  dryrun: flag('tell what would change, or be done, and do nothing'),
  yes: { ...flag('rm, edit, push, power, sel, import, adopt, trust: do not ask'), short: 'y' },
  image: value('IMAGE', 'rescue, rehearse: the OS image; default: that of the nodes; rollout: the OS image'),
  tag: value(
    'TAG',
    'rollout, rehearse: the tag; osimage push: the pack of this tag; default: what is packed now'
  ),
  batch: value('N|N%', 'rollout: nodes that are restarted at a time; default: 10%'),
  rehearse: flag('rollout: boot the first node in a virtual machine before'),
  'until-failed': value('N', 'rollout: stop when so many have failed; default: 1'),
  wait: value('MINUTES', 'rollout: a node that does not run by then has failed; default: 30'),
  restart: value('HOW', 'rollout: boot (default), cycle or reset by the BMC, or none: something else does'),
  end: flag('rescue: do not boot for it any more'),
  forget: flag('trust: forget the TPM of nodes, and what they proved'),
  firmware: flag('trust --forget: also what was accepted of their firmware'),
  group: value('GROUP', 'unknown adopt: the group of the new nodes'),
  order: value('ORDER', 'unknown adopt: time (default), serial, port or mac'),
  bmcsetup: value('NAME', 'unknown scan: the BMC set-up with the user of the BMCs'),
  role: value('ROLE', 'token create: viewer, operator or admin, also for groups alone (viewer:compute,gpu)'),
  days: value('N', 'token create: the token ends after so many days; default: it has no end'),
  log: flag('console: the last lines of its log'),
  lines: { ...value('N', 'console --log: how many lines; default: 100'), short: 'n' },
  shipped: flag('add: the disk layout of this name that comes with svcd'),
  stdin: flag('login: read the password from standard input'),
  oidc: flag('login: by the OpenID provider, in a browser on any machine'),
  version: flag('print version, interface version and source commit of svcctl'),
  help: { ...flag('print this; behind a type its verbs and fields'), short: 'h' }
} as const

type OptionTable = typeof optionTable

export type Options = {
  readonly [K in keyof OptionTable]?: OptionTable[K]['type'] extends 'string' ? string : boolean
}
