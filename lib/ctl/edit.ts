import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type JsonObject, type JsonValue, objectsIn, strictUtf8, within } from '../base/json.js'
import type { TypeName } from '../model/docs.js'
import { base64, type Field, secretMask } from '../model/field.js'
import { objectTypes } from '../model/types.js'
import { dryRunLines } from './render.js'
import { pathOf, type Session } from './session.js'
import { clean, cleanLines, Failure, refused, wrongUsage } from './terminal.js'
import { bodyOf, ofInterface, type Settable, settable } from './values.js'

const head = `# One FIELD=VALUE a line, as for \`set\`; FIELD= unsets.
# The lines of a longer text stand below it, indented by 4 blanks. Lines that begin with # do not count;
# those with values of the group or the cluster show what another value would replace.
`

/**
 * Opens an object's fields in the editor, and saves the change once its dry run was confirmed (rules 14.8).
 * If somebody else has changed the object meanwhile, it shows what differs and keeps the text in a file.
 * @throws Failure 1 if the answer is no or nothing was edited, 2 if there is no terminal to ask on
 */
export async function edited(
  session: Session,
  type: TypeName,
  name: string,
  save: (body: JsonObject) => Promise<void>
): Promise<void> {
  const { controller, terminal } = session
  const table = objectTypes[type]
  const path = pathOf(type, name)
  const read = async () => {
    const { json, etag } = await controller.tagged('GET', path)
    return { object: within(json, 'config', type, name), etag }
  }
  const { object, etag } = await read()
  controller.ifMatch = etag
  const kept = { text: head + [...linesOf(table, object), ''].join('\n') }
  try {
    await save(await confirmedBody(session, table, path, kept))
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 412) throw error
    const file = join(await mkdtemp(join(tmpdir(), 'svcctl-')), 'kept')
    await writeFile(file, kept.text, { mode: 0o600 })
    const now = await read().then(
      found => [...differing(table, object, found.object), ''].join('\n'),
      (failure: Error) => `${failure.message}\n`
    )
    terminal.err(cleanLines(now))
    throw refused(
      `${type} ${name}: somebody else has changed it meanwhile, and nothing was changed. Your text is in ` +
        `${file}; type: svcctl ${type} edit ${name}`
    )
  }
}

/** Yields the lines that are there no more, and the new ones; without the values of secrets. */
function* differing(type: Settable, before: JsonObject, after: JsonObject): Generator<string> {
  const [was, is] = [new Set(linesOf(type, before)), new Set(linesOf(type, after))]
  const secrets = new Set(type.fields.filter(({ secret }) => secret).map(({ name }) => name))
  const shown = (line: string) => {
    const key = /^[^=]*/.exec(line)?.[0] ?? ''
    return secrets.has(key) ? `${key}=${secretMask}` : line
  }
  for (const line of was) if (!is.has(line)) yield `- ${shown(line)}`
  for (const line of is) if (!was.has(line)) yield `+ ${shown(line)}`
}

/** Returns the body of the change once its dry run was confirmed. A refused text can be edited again. */
async function confirmedBody(session: Session, type: Settable, path: string, kept: { text: string }) {
  const { terminal, controller, options, paint } = session
  const first = kept.text
  const before = valuesIn(first)
  if (!options.yes && !options.dryrun && !terminal.shows.in)
    throw wrongUsage('nothing was changed: there is no terminal to ask on, use --yes')
  for (let text = first; ; ) {
    text = await terminal.edited(text)
    kept.text = text
    try {
      const after = valuesIn(text)
      const words = [...after].flatMap(([key, value]) =>
        before.get(key) === value ? [] : [wordOf(key, value)]
      )
      for (const key of before.keys()) if (!after.has(key)) words.push(`${key}=`)
      if (words.length === 0) throw refused('nothing was edited, and nothing was changed')
      // Here `-` is a text, not standard input.
      const body = await bodyOf(type, words, async place => Buffer.from(place))
      if (options.dryrun) return body
      const told = await controller.json('POST', path, { dryrun: 'yes' }, body)
      terminal.err([...dryRunLines(told, paint), ''].join('\n'))
      if (options.yes || (await terminal.confirmed('Change this? [y/N] '))) return body
    } catch (error) {
      const isMendable = error instanceof Failure && error.status !== 412
      if (!isMendable || text === first || !terminal.shows.in) throw error
      terminal.err(`${clean(error.message)}\n`)
    }
    if (!(await terminal.confirmed('Edit it again? [y/N] '))) throw refused('nothing was changed')
  }
}

const wordOf = (key: string, value: string) => `${key}=${value.startsWith('@') ? '@' : ''}${value}`

/** Parses an edited text. Throws Failure 2 naming the wrong line. */
function valuesIn(text: string): Map<string, string> {
  const values = new Map<string, string>()
  // The field of the indented lines, and the blank lines before the next one.
  let [key, blanks] = ['', '']
  for (const [i, line] of text.split(/\r?\n/).entries()) {
    if (key !== '' && line.startsWith('    ')) {
      values.set(key, `${values.get(key)}${blanks}${line.slice(4)}\n`)
      blanks = ''
    } else if (line.trim() === '') blanks += '\n'
    else if (line.startsWith('#')) key = ''
    else {
      const [, name = '', value = ''] = /^([^\s=]+)=(.*)$/.exec(line) ?? []
      const why = name === '' ? 'FIELD=VALUE is needed, or 4 blanks before the line of a text' : 'given twice'
      if (name === '' || values.has(name)) throw wrongUsage(`line ${i + 1}: ${line}: ${why}`)
      values.set(name, value)
      ;[key, blanks] = [value === '' ? name : '', '']
    }
  }
  return values
}

/** Yields the settable fields with their values; inherited values are comments. */
function* linesOf(type: Settable, object: JsonObject): Generator<string> {
  const told = (field: Field, key: string, value: JsonValue = null, source: JsonValue = null) => {
    const text = shown(field, value)
    if (text === undefined) return `# ${key} holds no text`
    const mark = source === null || source === type.title ? '' : `# (${source}) `
    const lines = text.replace(/\n$/, '').split('\n')
    return text.includes('\n')
      ? [`${key}=`, ...lines.map(line => `    ${line}`)].map(line => mark + line).join('\n')
      : `${mark}${key}=${text}`
  }
  for (const field of settable(type)) {
    const [value, source] = [object[field.name], object[`_${field.name}_source`]]
    if (!field.isMergedByKey) yield told(field, field.name, value, source)
    else
      for (const [name, one] of Object.entries(within(value)))
        yield told(field, `${field.name}.${name}`, one, within(source)[name])
  }
  for (const entry of objectsIn(object.interfaces))
    for (const field of ofInterface(type).filter(({ name }) => name !== 'force'))
      yield told(field, `${entry.interface}.${field.name}`, entry[field.name])
}

function shown({ type }: Field, value: JsonValue): string | undefined {
  if (type === base64 && typeof value === 'string') return strictUtf8(Buffer.from(value, 'base64'))
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',')
  if (Array.isArray(value)) return JSON.stringify(value, null, 2)
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value ?? '')
}
