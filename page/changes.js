import { count, h, number } from './dom.js'

const mostFields = 6
const mostCharacters = 60

/** Shows a value in few characters. */
export const short = value => {
  // In quotes, as an empty text would be invisible.
  const text = typeof value === 'string' && value !== '' ? value : (JSON.stringify(value) ?? '–')
  return text.length > mostCharacters ? `${text.slice(0, mostCharacters)}…` : text
}

/** Flattens the fields of an object; those of interfaces become `BOOTIF.ipaddress`. */
function flat({ name: _, interfaces, ...fields }) {
  if (!Array.isArray(interfaces)) return interfaces == null ? fields : { ...fields, interfaces }
  for (const { interface: of, ...rest } of interfaces)
    for (const [field, value] of Object.entries(rest)) fields[`${of}.${field}`] = value
  return fields
}

/** Returns the fields in a line of the audit log, each with its value before and after. */
function fieldsOf({ before, after, names }) {
  const [was, is] = [flat(before ?? {}), flat(after ?? {})]
  const keys = [...new Set([...Object.keys(was), ...Object.keys(is)])]
  return keys
    .filter(key => JSON.stringify(was[key]) !== JSON.stringify(is[key]))
    .map(key => {
      // In a line for several objects, null stands for values that differ between them.
      const told = value => (names && value === null ? 'various' : short(value))
      const first = key in was ? `${told(was[key])} → ` : ''
      return `${key}: ${first}${key in is ? told(is[key]) : 'none'}`
    })
}

/** Describes what a line of the audit log changed. */
export function changesOf(line) {
  if (line.counts)
    return Object.entries(line.counts)
      .map(([type, n]) => `${type}: ${n.created} new, ${n.changed} changed, ${n.deleted} deleted`)
      .join('; ')
  if (line.bytes) return `a line of ${line.bytes} bytes, too long to show: see the file of the audit log`
  const fields = fieldsOf(line)
  return h(
    'span',
    { class: 'values' },
    fields.slice(0, mostFields).map(text => h('span', {}, text)),
    fields.length > mostFields && ` and ${fields.length - mostFields} more`
  )
}

/** Shows the answer of a dry run: the message, and the first of what would change. */
export function dryRunShown({ message, changes = [], files = [], nodes = { count: 0, first: [] } }) {
  const listed = (title, all, total) => [
    h('strong', {}, title),
    h(
      'span',
      { class: 'values' },
      all
        .slice(0, 12)
        .map(({ field, before, after }) =>
          h('span', {}, `${field}: ${short(before ?? undefined)} → ${short(after ?? undefined)}`)
        ),
      total > 12 && ` and ${number(total - 12)} more`
    )
  ]
  const items = (all, title) =>
    h(
      'ul',
      { class: 'plain' },
      all.slice(0, 10).map(one => h('li', {}, listed(title(one), one.fields, one.fields.length)))
    )
  const ofNodes = changes.some(({ type }) => type === 'node')
  return [
    h('p', {}, message),
    items(changes, ({ type, name, action }) => `${action} ${type} ${name}`),
    changes.length > 10 && h('p', { class: 'faint' }, `and ${number(changes.length - 10)} more`),
    nodes.count > 0 &&
      !ofNodes && [
        h('p', {}, `Other values for ${count(nodes.count, 'node')}:`),
        items(nodes.first, ({ name }) => name)
      ],
    files.map(({ service, path, problem }) =>
      h('p', {}, path ? `${path} would differ` : `${service}: ${problem}`)
    )
  ]
}
