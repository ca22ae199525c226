/**
 * A variable of a template. The tables of variables say what the code has to pass (DataOf makes the type of it)
 * and what docs/templates.md tells of it.
 */
export interface Variable {
  /** As the document calls the type. */
  readonly type: string
  readonly meaning: string
  /** What each map has in it. */
  readonly shape?: Shape
}

/** The variables of a template, by name. */
export type Variables = Readonly<Record<string, Variable>>

/** A kind of map that variables hold. */
export interface Shape<V extends Variables = Variables> {
  /** Such as "subnet". */
  readonly title: string
  readonly meaning: string
  readonly variables: V
}

/** A variable with the type of its value, which no variable holds at run time. */
export interface Typed<T> extends Variable {
  readonly value?: T
}

/** What the code passes for a table of variables. */
export type DataOf<V extends Variables> = {
  readonly [Name in keyof V]: V[Name] extends Typed<infer T> ? T : never
}

/** A string; T where it has few values. */
export const text = <T extends string = string>(meaning: string): Typed<T> => ({ type: 'string', meaning })

/** An integer. */
export const integer = (meaning: string): Typed<number> => ({ type: 'integer', meaning })

/** A boolean. */
export const flag = (meaning: string): Typed<boolean> => ({ type: 'boolean', meaning })

/** A list of strings. */
export const texts = (meaning: string): Typed<readonly string[]> => ({ type: 'list of strings', meaning })

/** A map of strings whose names an admin chooses. */
export const textMap = (meaning: string): Typed<Readonly<Record<string, string>>> => ({
  type: 'map of strings',
  meaning
})

/** A map. */
export const map = <V extends Variables>(shape: Shape<V>, meaning: string): Typed<DataOf<V>> => ({
  type: 'map',
  meaning,
  shape
})

/** A map, or false where there is none. */
export const mapOrFalse = <V extends Variables>(
  shape: Shape<V>,
  meaning: string
): Typed<DataOf<V> | false> => ({ type: 'map or false', meaning, shape })

/** A list of maps. */
export const maps = <V extends Variables>(shape: Shape<V>, meaning: string): Typed<readonly DataOf<V>[]> => ({
  type: 'list of maps',
  meaning,
  shape
})

/** A list of lists of maps. */
export const mapLists = <V extends Variables>(
  shape: Shape<V>,
  meaning: string
): Typed<readonly (readonly DataOf<V>[])[]> => ({ type: 'list of lists of maps', meaning, shape })

/** The tables of variables as Markdown, below `intro`: those of each template, and after them the maps in them. */
export function variablesDocument(intro: string, templates: Readonly<Record<string, Variables>>): string {
  const names = new Map<Variables, string[]>()
  for (const [name, variables] of Object.entries(templates))
    names.set(variables, [...(names.get(variables) ?? []), `\`${name}\``])
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
  // a table may add shapes, which follow in their turn
  for (const { title, meaning, variables } of shapes)
    sections.push(`### Map: ${title}\n\n${meaning}\n\n${table(variables)}`)
  return `${intro.trimEnd()}\n\n${sections.join('\n\n')}\n`
}
