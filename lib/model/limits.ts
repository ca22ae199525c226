import type { Change } from '../store/types.js'
import type { Docs, TypeName } from './docs.js'
import type { Table } from './field.js'
import { settingFields } from './settings.js'
import type { View } from './stored.js'
import { limitViolations } from './table.js'
import { objectTypes, typeNames } from './types.js'

/** The fields with limits, by type. */
const limitedFields = new Map<string, Table>(
  typeNames.map(type => [type, objectTypes[type].fields.filter(({ limit }) => limit)])
)

/** Returns the values of an object that may have limits, with their table. */
function limited(type: string, doc: object | undefined): [table: Table, values: object | undefined] {
  if (type !== 'cluster') return [limitedFields.get(type) ?? [], doc]
  const settings = Object.entries((doc as Docs['cluster'] | undefined)?.settings ?? {})
  return [settingFields, Object.fromEntries(settings.map(([name, { value }]) => [name, value]))]
}

/** Returns a sentence per object with a value now beyond a limit (rules 3.11), without values: secrets. */
export function limitWarnings(changes: Iterable<Change>): string[] {
  return [...changes].flatMap(({ type, name, before, after }) => {
    if (!after) return []
    const [table, now = {}] = limited(type, after)
    if (table.length === 0) return []
    const why = [...limitViolations(table, limited(type, before)[1], now)]
    const title = objectTypes[type as TypeName]?.title
    return why.length === 0 ? [] : `${title === undefined ? type : `${title} ${name}`}: ${why.join('; ')}`
  })
}

/** Returns the sentences of `limitWarnings` for all stored objects. */
export function stateWarnings(view: View): string[] {
  const all = ([...typeNames, 'cluster'] as const).flatMap(type =>
    view.names(type).map(name => ({ type, name, before: undefined, after: view.get(type, name) }))
  )
  return limitWarnings(all)
}
