import { isObject, type JsonObject, type JsonValue, utf8 } from '../json.js'
import { base64, type Table } from '../model/field.js'
import { named, participles } from '../model/types.js'
import { fold } from '../node-set/fold.js'
import { clean, cleanLines, type Paint } from './terminal.js'

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
    ? (utf8(Buffer.from(value, 'base64')) ?? text)
    : text
}

/** A value on one line, as a person reads it. */
export function plain(value: JsonValue | undefined): string {
  if (value === null || value === undefined || value === '') return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',') || '-'
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

const objects = (value: JsonValue | undefined) => (Array.isArray(value) ? value.filter(isObject) : [])

/** A change of a dry run in words: what happens to whom, and the fields below it. */
interface Would {
  readonly type: string
  readonly name: string
  readonly be: string
  readonly fields: readonly string[]
}

const byField = (change: JsonObject, side: 'before' | 'after') =>
  new Map(objects(change.fields).map(one => [plain(one.field), plain(one[side])]))

/** What would become of one object. Of a new one, and of one that goes, the values that it has. */
function wouldOf(change: JsonObject): Would {
  const [type, name, action] = [plain(change.type), plain(change.name), plain(change.action)]
  const side = action === 'create' ? 'after' : action === 'delete' ? 'before' : undefined
  const fields = objects(change.fields).map(one =>
    side === undefined || type === 'cluster'
      ? `${plain(one.field)}: ${plain(one.before)} -> ${plain(one.after)}`
      : `${plain(one.field)}: ${plain(one[side])}`
  )
  return { type, name, be: type === 'cluster' ? 'changed' : (participles[action] ?? action), fields }
}

/** Two changes that are one rename: only what else differs is told of it. */
function renameOf(gone: JsonObject, made: JsonObject): Would {
  const [before, after] = [byField(gone, 'before'), byField(made, 'after')]
  const fields = [...new Set([...before.keys(), ...after.keys()])]
    .filter(field => before.get(field) !== after.get(field))
    .map(field => `${field}: ${before.get(field) ?? '-'} -> ${after.get(field) ?? '-'}`)
  return { type: plain(gone.type), name: plain(gone.name), be: `renamed to ${plain(made.name)}`, fields }
}

/** The changes of a dry run, each object once: a rename is told as one that goes and one that is made. */
function* woulds(changes: readonly JsonObject[]): Generator<Would> {
  const of = (type: JsonValue | undefined, action: string) =>
    changes.filter(change => change.type === type && change.action === action)
  const types = new Map(
    [...new Set(changes.map(({ type }) => type))].map(type => {
      const [made, gone] = [of(type, 'create'), of(type, 'delete')]
      return [type, made.length > 0 && made.length === gone.length ? { made, gone } : undefined]
    })
  )
  for (const change of changes) {
    const renamed = change.action === 'update' ? undefined : types.get(change.type)
    const at = renamed?.made.indexOf(change) ?? -1
    if (!renamed) yield wouldOf(change)
    // Secrets go with their owner.
    else if (at >= 0 && change.type !== 'secrets') yield renameOf(renamed.gone[at] as JsonObject, change)
  }
}

/** What a dry run tells: each object with what would become of it, nodes that change alike together. */
export function* dryRunLines({ message, changes, files }: JsonObject, paint: Paint): Generator<string> {
  yield clean(plain(message))
  const alike = new Map<string, Would & { readonly names: string[] }>()
  for (const would of woulds(objects(changes))) {
    // Each node gets an address of its own, so that what is given shows nodes one by one.
    const { type, name, be, fields } = would
    const key = JSON.stringify([type === 'node' ? type : [type, name], be, fields])
    const same = alike.get(key)
    if (same) same.names.push(name)
    else alike.set(key, { ...would, names: [name] })
  }
  for (const { type, be, fields, names } of alike.values()) {
    const who = names.length > 1 ? `nodes ${fold(names)}` : named(type, names[0] ?? '')
    yield paint('bold', clean(`${who} would be ${be}${fields.length > 0 ? ':' : ''}`))
    for (const line of fields) yield `  ${clean(line)}`
  }
  for (const { service, path, diff, problem } of objects(files)) {
    if (typeof problem === 'string') {
      yield paint('bold', clean(`${plain(service)}: its files could not be made: ${problem}`))
      continue
    }
    yield paint('bold', clean(`${plain(service)}: the file ${plain(path)} would change:`))
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
  message
    .replace(/(?:\bnode )?([\w-]+(?:\.[\w-]+)*)/g, (text, word) => (word === node ? 'the node' : text))
    // In what is to be typed.
    .replace('svcctl node set the node ', 'svcctl node set NODE ')

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
