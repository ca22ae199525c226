import { accessOf } from '../auth/access.js'
import { groupBy } from '../base/lists.js'
import { type BodyField, interfaceEntry } from '../model/request.js'
import { secretEntry } from '../model/secrets.js'
import { clusterFields } from '../model/settings.js'
import { objectTypes } from '../model/types.js'
import type { ApiRoute } from './context.js'

const row = (cells: readonly string[]) => `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [row(head), row(head.map(() => '---')), ...rows.map(row)].join('\n')
}

function fieldRow(field: BodyField): string[] {
  const name = [field.name, ...(field.otherSpellings ?? [])].map(spelling => `\`${spelling}\``).join(', ')
  const fallback = field.default === undefined ? '' : `\`${JSON.stringify(field.default)}\``
  const notes = [
    ...(field.inherited === 'group' ? ['nodes inherit it from their group'] : []),
    ...(field.inherited === 'cluster' ? ['nodes inherit it from their group, groups from the cluster'] : []),
    ...(field.secret ? ['masked for a viewer'] : []),
    ...(field.derived === true ? ['read-only: accepted in requests, but ignored'] : []),
    ...(field.derived === 'settable' ? ['a request changes this field of the interface'] : []),
    ...(field.requestOnly ? ['in requests only'] : [])
  ]
  return [name, field.type.expected, field.meaning, fallback, notes.join('; ')]
}

const fieldHead = ['field', 'takes', 'meaning', 'default', '']

const limits = {
  node: 'where the node is in their groups',
  group: 'where the group is theirs',
  filtered: 'the nodes of their groups, and what they asked for'
}

/** Returns docs/access.md with the table of the routes that others than admins may call. */
export function accessDocument(routes: readonly ApiRoute[], page: string): string {
  const rows = routes.flatMap(route => {
    const { token, viewer, operator } = accessOf(route)
    if (token === 'unread' || !operator) return []
    const mark = (may: boolean) => (may ? 'yes' : 'no')
    const name = `${route.method} \`${route.path}\``
    return [[name, mark(viewer), mark(operator), route.limited ? limits[route.limited] : 'no']]
  })
  const head = ['route', 'viewer', 'operator', 'limited to groups']
  return `${page.slice(0, page.indexOf('\n| route |'))}\n${table(head, rows)}\n`
}

/** Returns the interface as Markdown: `intro`, then every route and field from the tables. */
export function apiDocument(routes: readonly ApiRoute[], intro: string): string {
  const parts = groupBy(routes, ({ path }) => {
    const [, first = '', second = ''] = path.split('/')
    return first === 'config' && second !== '' ? `/config/${second}` : `/${first}`
  })
  const sections = [...parts].map(([part, list]) => {
    const rows = list.map(route => [
      route.method,
      `\`${route.path}\``,
      route.summary,
      accessOf(route).says,
      route.codes.join(', ')
    ])
    return `### ${part}\n\n${table(['', 'path', 'what', 'access', 'answers'], rows)}`
  })
  const fields = [
    ...Object.values(objectTypes).map(
      type =>
        `### ${type.title}\n\n` +
        `The new name of a rename or a clone goes into \`${type.newName.join('` or `')}\`. ` +
        `A name is ${type.nameRule}.\n\n${table(fieldHead, type.fields.map(fieldRow))}`
    ),
    ...[
      ['interface entry', interfaceEntry] as const,
      ['secret', secretEntry] as const,
      ['cluster', clusterFields] as const
    ].map(([title, entry]) => `### ${title}\n\n${table(fieldHead, entry.map(fieldRow))}`)
  ]
  return (
    `${intro.trimEnd()}\n\n## Routes\n\n${sections.join('\n\n')}\n\n` +
    `## Fields\n\n${fields.join('\n\n')}\n`
  )
}
