import { addTo } from './lists.js'

/** A variable of a template. Tables of variables give the type of the data (DataOf) and docs/templates.md. */
export interface Variable {
  /** The type's name in the document. */
  readonly type: string
  readonly meaning: string
  /** The contents of each map. */
  readonly shape?: Shape
}

export type Variables = Readonly<Record<string, Variable>>

interface Shape<V extends Variables = Variables> {
  readonly title: string
  readonly meaning: string
  readonly variables: V
}

/** A variable with the type of its value; `value` exists for the type checker only. */
interface Typed<T> extends Variable {
  readonly value?: T
}

/** The data for a table of variables. */
export type DataOf<V extends Variables> = {
  readonly [Name in keyof V]: V[Name] extends Typed<infer T> ? T : never
}

/** A string; `T` restricts its values. */
export const text = <T extends string = string>(meaning: string): Typed<T> => ({ type: 'string', meaning })

const typed =
  <T>(type: string) =>
  (meaning: string): Typed<T> => ({ type, meaning })

/** An integer. */
export const integer = typed<number>('integer')
/** A boolean. */
export const flag = typed<boolean>('boolean')
/** A list of strings. */
export const texts = typed<readonly string[]>('list of strings')
/** A map of strings whose keys an admin chooses. */
export const textMap = typed<Readonly<Record<string, string>>>('map of strings')

const shaped = <T>(type: string, shape: Shape, meaning: string): Typed<T> => ({ type, meaning, shape })

/** A map. */
export const map = <V extends Variables>(shape: Shape<V>, meaning: string) =>
  shaped<DataOf<V>>('map', shape, meaning)

/** A map, or false without one. */
export const mapOrFalse = <V extends Variables>(shape: Shape<V>, meaning: string) =>
  shaped<DataOf<V> | false>('map or false', shape, meaning)

/** A list of maps. */
export const maps = <V extends Variables>(shape: Shape<V>, meaning: string) =>
  shaped<readonly DataOf<V>[]>('list of maps', shape, meaning)

/** A list of lists of maps. */
export const mapLists = <V extends Variables>(shape: Shape<V>, meaning: string) =>
  shaped<readonly (readonly DataOf<V>[])[]>('list of lists of maps', shape, meaning)

/** Renders tables of variables as Markdown below `intro`: those of the templates, then the maps in them. */
export function variablesDocument(intro: string, templates: Readonly<Record<string, Variables>>): string {
  const names = new Map<Variables, string[]>()
  for (const [name, variables] of Object.entries(templates)) addTo(names, variables, `\`${name}\``)
  const shapes = new Set<Shape>()
  const table = (variables: Variables): string => {
    const rows = Object.entries(variables).map(([name, { type, meaning, shape }]) => {
      if (shape) shapes.add(shape)
      return `| \`${name}\` | ${shape ? `${type}: ${shape.title}` : type} | ${meaning} |`
    })
    if (rows.length === 0) return 'It has none.'
    return ['| variable | type | meaning |', '|---|---|---|', ...rows].join('\n')
  }
  const sections = Array.from(names, ([variables, of]) => `### ${of.join(', ')}\n\n${table(variables)}`)
  // Set iteration also visits shapes that table() adds.
  for (const { title, meaning, variables } of shapes)
    sections.push(`### Map: ${title}\n\n${meaning}\n\n${table(variables)}`)
  return `${intro.trimEnd()}\n\n${sections.join('\n\n')}\n`
}
