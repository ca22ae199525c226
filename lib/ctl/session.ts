import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { isNodeSet } from '../node-set/evaluate.js'
import type { Answer, Controller, Query } from './controller.js'
import { clean, cleanLines, noController, type Paint, paintFor, type Terminal } from './terminal.js'

/** What `-o` may say. */
export const formats = ['text', 'json', 'csv'] as const
export type Format = (typeof formats)[number]

/** The options of a command line, as they were given. */
export interface Options {
  readonly url?: string
  readonly cacert?: string
  readonly output?: string
  readonly fields?: string
  readonly sort?: string
  readonly dryrun?: boolean
  readonly yes?: boolean
  readonly stdin?: boolean
  readonly version?: boolean
  readonly help?: boolean
}

/** One run of the client: the controller that it asks, and the terminal that it shows the answers on. */
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

  /** Shows lines, which are safe to show. */
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

  /** Shows a value as JSON: laid out for a person, on one line for a program. */
  json(value: JsonValue): Promise<void> {
    const { out } = this.terminal.shows
    return this.terminal.out(`${cleanLines(JSON.stringify(value, null, out ? 2 : undefined))}\n`)
  }

  /** Shows lines of CSV: to a program as they are. */
  csv(lines: Iterable<string>): Promise<void> {
    const text = [...lines, ''].join('\n')
    return this.terminal.out(this.terminal.shows.out ? cleanLines(text.replaceAll('\r', '')) : text)
  }

  /** Shows what the controller renders, as it comes (rules 14.4). */
  async rendered(path: string, query: Query): Promise<void> {
    const { terminal, format, options, controller } = this
    const { out } = terminal.shows
    const { fields, sort } = options
    const pretty = format === 'json' && out ? 'yes' : undefined
    const answer = await controller.send('GET', path, { ...query, fields, sort, format, pretty })
    checkType(answer, format)
    // A program reads JSON and CSV as they were sent.
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

  /** Shows what a change was answered with; `done` where the answer has no text. */
  changed(answer: JsonObject, done: string): Promise<void> {
    const { message } = answer
    const text = typeof message === 'string' ? message : done
    return this.format === 'json' ? this.json({ message: text, ...answer }) : this.lines([clean(text)])
  }

  /** The names of the nodes that a name or a set stands for, each once. */
  async nodes(set: string): Promise<string[]> {
    if (!isNodeSet(set)) return [set]
    const all = new Set<string>()
    for (const nodes of unions(set)) {
      const { config } = await this.controller.json('GET', '/config/node', { nodes, fields: 'name' })
      const { node } = isObject(config) ? config : {}
      for (const name of Object.keys(isObject(node) ? node : {})) all.add(name)
    }
    return [...all]
  }
}

/** So many characters of a set go into one URL. */
const mostOfSet = 8192

/** A set as several whose union it is, where it is long and joined by commas alone. */
function unions(set: string): string[] {
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

/** A web server of another kind would answer with a page. */
function checkType({ incoming, controller }: Answer, format: Format): void {
  const type = String(incoming.headers['content-type'] ?? '')
  if (!type.startsWith(types[format]))
    throw noController(`no svcd at ${controller.name}: what is there does not answer in ${types[format]}`)
}
