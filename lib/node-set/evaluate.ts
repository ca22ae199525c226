import { badRequest } from '../errors.js'
import { expand } from './expand.js'

/** How many names a set may name, unless the caller says it, those that it takes away again counted too. */
const MOST_NAMES = 100_000

/** The names of a group of nodes, `group` or `kind:value` as it stands behind the @; throws ServiceError where it is unknown. */
export type Resolve = (group: string) => Iterable<string>

/**
 * The names that a node set in ClusterShell's notation stands for, each once: `node[001-100,120]`, `@group`, joined by `,`
 * (union), `!` (difference), `&` (intersection) and `^` (in one of both), which are applied from left to right. Whether
 * the names are nodes is not looked at. Throws ServiceError 400 for what is no node set.
 */
export function evaluate(text: string, resolve: Resolve, most = MOST_NAMES): Set<string> {
  let found = new Set<string>()
  let left = most
  // Each time that a name is named counts: a repeated one takes its time too.
  const count = () => {
    if (left-- === 0) throw notASet(text, `it names more than ${most.toLocaleString('en')} nodes`)
  }
  for (const { operator, operand } of operations(text)) {
    const names = named(operand, text, resolve, count)
    if (operator === ',') for (const name of names) found.add(name)
    else if (operator === '!') for (const name of names) found.delete(name)
    else if (operator === '&') found = new Set([...names].filter(name => found.has(name)))
    else for (const name of names) if (!found.delete(name)) found.add(name)
  }
  return found
}

/** Whether a text in a path is a set: no name has one of these characters. */
export const isNodeSet = (text: string): boolean => /[[@,!&^]/.test(text)

interface Operation {
  readonly operator: string
  readonly operand: string
}

/** Splits at the operators that do not stand in brackets; the first operand is united with nothing. */
function operations(text: string): Operation[] {
  const found: Operation[] = []
  let operator = ','
  let start = 0
  let isInside = false
  for (let at = 0; at <= text.length; at++) {
    const character = text[at]
    if (character === '[') isInside = true
    if (character === ']') isInside = false
    if (character !== undefined && (isInside || !',!&^'.includes(character))) continue
    const operand = text.slice(start, at).trim()
    if (operand === '')
      throw notASet(text, start === 0 ? 'it begins with nothing' : `nothing stands at "${operator}"`)
    found.push({ operator, operand })
    operator = character ?? ''
    start = at + 1
  }
  return found
}

function named(operand: string, text: string, resolve: Resolve, count: () => void): Set<string> {
  const isGroup = operand.startsWith('@')
  const names = new Set<string>()
  const add = (name: string) => {
    count()
    names.add(name)
  }
  for (const name of expand(isGroup ? operand.slice(1) : operand, reason => notASet(text, reason)))
    if (isGroup) for (const member of resolve(name)) add(member)
    else add(name)
  return names
}

const shown = (text: string) => (text.length > 200 ? `${text.slice(0, 200)}…` : text)
const notASet = (text: string, reason: string) => badRequest(`node set ${shown(text)}: ${reason}`)
