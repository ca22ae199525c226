import { FieldError, type Problem, reasonOf } from './errors.js'
import { JsonError, lineOf, parseJson, refuseDuplicateKeys } from './json.js'
import { assertStorable, type Stored } from './medium.js'
import { compareNames } from './order.js'
import { deepFreeze } from './transaction.js'
import type { Doc, Kind } from './types.js'

/** The objects of a store as read. */
export interface Loaded {
  /** Those of each type in the order of their names. */
  readonly objects: readonly { type: string; name: string; doc: Doc }[]
  /** What must stop a start. */
  readonly problems: readonly Problem[]
  /** What is none of ours: reported, and left alone. */
  readonly foreign: readonly Problem[]
  /** Objects that are to be written anew, and why. */
  readonly outdated: readonly Outdated[]
}

/** An object that is stored with what none should hold. */
export interface Outdated extends Problem {
  readonly type: string
  readonly name: string
}

interface Loading {
  objects: { type: string; name: string; doc: Doc }[]
  problems: Problem[]
  outdated: Outdated[]
}

/** Reads every object. In one go: nothing is served before it ends. */
export function load(stored: Stored, kinds: ReadonlyMap<string, Kind<Doc>>): Loaded {
  const loading: Loading = {
    objects: [],
    problems: [...stored.problems(new Set(kinds.keys()))],
    outdated: []
  }
  for (const [type, kind] of kinds) {
    try {
      loadType(stored, type, kind, loading)
    } catch (error) {
      loading.problems.push({ file: stored.place(type), message: reasonOf(error) })
    }
  }
  return { ...loading, foreign: stored.foreign }
}

function loadType(stored: Stored, type: string, kind: Kind<Doc>, loading: Loading): void {
  for (const name of [...stored.names(type)].sort(compareNames)) {
    let text: string | undefined
    try {
      assertStorable(name)
      text = stored.text(type, name)
      if (text === undefined) continue
      const json = parseJson(text)
      loading.objects.push({ type, name, doc: deepFreeze(kind.decode(name, json)) })
      // The store itself writes no key twice: only a text from elsewhere needs the closer look.
      if (`${JSON.stringify(json, null, 2)}\n` !== text) refuseDuplicateKeys(text)
      const why = kind.outdated?.(json)
      if (why !== undefined)
        loading.outdated.push({ type, name, file: stored.place(type, name), message: why })
    } catch (error) {
      const others = error instanceof FieldError ? error.others : []
      for (const one of [error, ...others])
        loading.problems.push({
          file: stored.place(type, name),
          ...lineIn(text, one),
          message: reasonOf(one)
        })
    }
  }
}

function lineIn(text: string | undefined, error: unknown): { line?: number } {
  if (error instanceof JsonError) return { line: error.line }
  if (error instanceof FieldError && text !== undefined) return { line: lineOf(text, error.path) }
  return {}
}
