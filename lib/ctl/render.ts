import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { base64, type Table } from '../model/field.js'
import { fold } from '../node-set/fold.js'
import { clean, cleanLines, type Paint } from './terminal.js'
import { decoded } from './values.js'

/** A field below each other with its value, and who sets it where that is told. Each line is safe to show. */
export function* objectLines(table: Table, object: JsonObject, paint: Paint): Generator<string> {
  const { interfaces, ...fields } = object
  // Who sets a field stands behind it.
  const shown = Object.entries(fields).filter(([key]) => !key.endsWith('_source'))
  const width = shown.reduce((most, [key]) => Math.max(most, clean(key).length), 0)
  for (const [key, value] of shown) {
    const label = clean(key)
    const lead = `${paint('bold', label)}${' '.repeat(width - label.length)}  `
    const text = shownValue(table, key, value)
    const source = fields[`_${key.replace(/^_/, '')}_source`]
    const from = typeof source === 'string' ? ` ${paint('dim', `(${clean(source)})`)}` : ''
    if (text.includes('\n')) {
      yield `${lead}${from.trim()}`.trimEnd()
      yield* indented(text)
    } else if (isObject(value)) {
      const sources = isObject(source) ? source : {}
      if (Object.keys(value).length === 0) yield `${lead}-`
      else yield lead.trimEnd()
      for (const [name, one] of Object.entries(value)) {
        const who = sources[name]
        const told = typeof who === 'string' ? ` ${paint('dim', `(${clean(who)})`)}` : ''
        yield `    ${clean(name)} = ${clean(plain(one))}${told}`
      }
    } else yield `${lead}${clean(text)}${from}`
  }
  if (!Array.isArray(interfaces)) return
  for (const entry of interfaces.filter(isObject)) {
    const { interface: name, ...rest } = entry
    const told = Object.entries(rest).filter(([, value]) => value !== null && value !== '')
    yield `${paint('bold', clean(plain(name)))}  ${told.map(([key, value]) => `${clean(key)}=${clean(plain(value))}`).join('  ')}`
  }
}

function* indented(text: string): Generator<string> {
  for (const line of text.replace(/\n$/, '').split('\n')) yield `    ${clean(line)}`
}

/** A script is kept in base64, and a person reads its text. */
function shownValue(table: Table, key: string, value: JsonValue): string {
  const isScript = table.some(({ name, type }) => name === key && type === base64)
  const text = plain(value)
  return isScript && typeof value === 'string' && value !== ''
    ? (decoded(Buffer.from(value, 'base64')) ?? text)
    : text
}

function plain(value: JsonValue | undefined): string {
  if (value === null || value === undefined || value === '') return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',') || '-'
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

const objects = (value: JsonValue | undefined) => (Array.isArray(value) ? value.filter(isObject) : [])

/** What a dry run tells: each object with its fields before and after, nodes that change alike together. */
export function* dryRunLines({ message, changes, files }: JsonObject, paint: Paint): Generator<string> {
  yield clean(plain(message))
  const alike = new Map<string, string[]>()
  for (const { type, name, action, fields } of objects(changes)) {
    const told = objects(fields).map(
      ({ field, before, after }) => `  ${plain(field)}: ${plain(before)} -> ${plain(after)}`
    )
    // Each node gets an address of its own, so that what is given shows nodes one by one.
    const key = JSON.stringify([type === 'node' ? type : `${plain(type)} ${plain(name)}`, action, told])
    const names = alike.get(key)
    if (names) names.push(plain(name))
    else alike.set(key, [plain(name)])
  }
  for (const [key, names] of alike) {
    const [what, action, told] = JSON.parse(key) as [string, string, string[]]
    yield paint('bold', clean(`${what === 'node' ? `node ${fold(names)}` : what}: ${action}`))
    for (const line of told) yield clean(line)
  }
  for (const { service, path, diff } of objects(files)) {
    yield paint('bold', clean(`${plain(service)}: ${plain(path)} would differ:`))
    for (const line of plain(diff).replace(/\n$/, '').split('\n')) {
      const colour = line.startsWith('+') ? 'green' : line.startsWith('-') ? 'red' : undefined
      yield `  ${colour ? paint(colour, clean(line)) : clean(line)}`
    }
  }
}

/** The boots of a node, each with its steps. */
export function* bootLines(node: string, told: JsonValue | undefined, paint: Paint): Generator<string> {
  const { boots, elsewhere } = isObject(told) ? told : {}
  const step = (one: JsonObject) => {
    const { step: what, about, from, time, count, end, bytes } = one
    const parts = [time, what, about, end, typeof bytes === 'number' ? `${bytes} bytes` : null]
    const often = typeof count === 'number' && count > 1 ? [`${count} times`] : []
    const words = [...parts.filter(part => (part ?? '') !== '').map(plain), ...often]
    return clean(`  ${words.join('  ')}${(from ?? '') === '' ? '' : `  from ${plain(from)}`}`)
  }
  if (objects(boots).length === 0) yield `node ${clean(node)}: no boot was seen`
  for (const { began, from, steps, omitted } of objects(boots)) {
    yield paint('bold', clean(`node ${node}: boot of ${plain(began)} from ${plain(from)}`))
    for (const one of objects(steps)) yield step(one)
    if (typeof omitted === 'number' && omitted > 0) yield `  and ${omitted} more steps`
  }
  if (objects(elsewhere).length > 0)
    yield paint('bold', clean(`node ${node}: from addresses that are not its own`))
  for (const one of objects(elsewhere)) yield step(one)
}

/** A node's own name in what came of it, so that the same outcome of many nodes reads the same. */
const withoutName = (message: string, node: string) =>
  message.replace(/(?:\bnode )?([\w-]+(?:\.[\w-]+)*)/g, (text, word) => (word === node ? 'the node' : text))

/** What came of each node, those with the same outcome together. A log of several lines stands by itself. */
export function* outcomeLines(
  outcomes: ReadonlyMap<string, { readonly failed: boolean; readonly message: string }>,
  paint: Paint
): Generator<string> {
  const alike = new Map<string, { text: string; nodes: string[] }>()
  for (const [node, { failed, message }] of outcomes) {
    const text = `${failed ? 'failed: ' : ''}${message}`
    const key = failed ? withoutName(text, node) : text
    const same = alike.get(key)
    if (!same) alike.set(key, { text, nodes: [node] })
    else {
      same.nodes.push(node)
      if (same.text !== text) same.text = key
    }
  }
  for (const { text, nodes } of alike.values()) {
    const colour = text.startsWith('failed: ') ? 'red' : 'bold'
    const lead = paint(colour, clean(fold(nodes)))
    if (text.trimEnd().includes('\n')) {
      yield `${lead}:`
      yield* indented(cleanLines(text))
    } else yield `${lead}: ${clean(text.trimEnd())}`
  }
}
