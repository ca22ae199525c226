import { badRequest, notFound } from '../base/errors.js'
import { expand, forMessage } from './hostlist.js'

/** Default limit of names and operands in a set, including names that are subtracted again. */
const MOST_NAMES = 100_000
/** Characters of an operand, for ten thousand single numbers in brackets. */
const LONGEST_OPERAND = 256 * 1024
/** Distinct groups and patterns of a set: each may scan all nodes. */
const MOST_GROUPS = 100
/** Characters of a node name (rules 3.1), and of a group: `status:` and the longest state. */
const LONGEST = { name: 63, group: 1031 } as const

/** Finds the names of a group, `group` or `kind:value` without the @; throws ServiceError if unknown. */
type GroupResolver = (group: string) => Generator<void, Iterable<string>>

/**
 * Evaluates a node set in ClusterShell's notation to its names without duplicates: `node[001-100,120]`,
 * `node*`, `@group`, joined by `,` (union), `!` (difference), `&` (intersection) and `^` (symmetric
 * difference) from left to right. It does not check that the nodes exist. No step takes more than a few
 * milliseconds, whatever the text. Throws ServiceError 400 for any other text.
 */
export function* evaluate(
  text: string,
  resolve: GroupResolver,
  most = MOST_NAMES
): Generator<void, Set<string>> {
  const found = new Set<string>()
  let left = most
  // Repeated names count each time, as each takes time.
  const count = () => {
    if (left-- === 0) throw notASet(text, `it names more than ${most.toLocaleString('en')} nodes`)
  }
  const groups = new Map<string, Iterable<string>>()
  function* membersOf(group: string, isPattern: boolean): Generator<void, Iterable<string>> {
    count()
    const key = isPattern ? group : `@${group}`
    const known = groups.get(key)
    if (known) return known
    if (groups.size === MOST_GROUPS) throw notASet(text, `it names more than ${MOST_GROUPS} different groups`)
    const found = isPattern ? matching(group, yield* membersOf('all', false)) : resolve(group)
    // Copied, because the original may change between two steps.
    const members = [...(yield* found)]
    groups.set(key, members)
    return members
  }
  function* named(operand: string): Generator<void, Set<string>> {
    const isGroup = operand.startsWith('@')
    const names = new Set<string>()
    const add = (name: string) => {
      count()
      names.add(name)
    }
    const [pattern, longest] = isGroup ? [operand.slice(1), LONGEST.group] : [operand, LONGEST.name]
    for (const name of expand(pattern, longest, reason => notASet(text, reason))) {
      yield
      if (name === undefined) continue
      const isPattern = !isGroup && name.includes('*')
      if (!isGroup && !isPattern) add(name)
      else for (const member of yield* membersOf(name, isPattern)) yield add(member)
    }
    return names
  }
  for (const { operator, operand } of operations(text)) {
    const names = yield* named(operand)
    if (operator === '&') for (const name of found) yield void (names.has(name) || found.delete(name))
    else if (operator === ',') for (const name of names) yield void found.add(name)
    else if (operator === '!') for (const name of names) yield void found.delete(name)
    else for (const name of names) yield void (found.delete(name) || found.add(name))
  }
  return found
}

/** Whether a text in a path is a node set: names have none of these characters. */
export const isNodeSet = (text: string): boolean => /[[@,!&^*]/.test(text)

/** Returns the names that match a pattern with `*`. Throws 404 if there are none. */
function* matching(pattern: string, names: Iterable<string>): Generator<void, string[]> {
  const found: string[] = []
  for (const name of names) yield void (isLike(pattern, name) && found.push(name))
  if (found.length === 0)
    throw notFound(`node set: no node has a name like ${forMessage(pattern)}`, 'unknown-node-set')
  return found
}

/** Not a regular expression: with many `*` it takes hours for a name that does not match. */
export function isLike(pattern: string, name: string): boolean {
  const [first = '', ...inner] = pattern.split('*')
  const last = inner.pop() ?? ''
  let at = name.startsWith(first) ? first.length : -1
  for (const part of inner) {
    if (at < 0) return false
    const found = name.indexOf(part, at)
    at = found < 0 ? found : found + part.length
  }
  return at >= 0 && name.length - last.length >= at && name.endsWith(last)
}

/** Splits at operators outside brackets, lazily; the first operand is united with the empty set. */
function* operations(text: string): Generator<{ readonly operator: string; readonly operand: string }> {
  let operator = ','
  let start = 0
  let isInside = false
  for (let at = 0; at <= text.length; at++) {
    const character = text[at]
    if (character === '[') isInside = true
    if (character === ']') isInside = false
    if (at - start > LONGEST_OPERAND)
      throw notASet(text, `a part of it has more than ${LONGEST_OPERAND.toLocaleString('en')} characters`)
    if (character !== undefined && (isInside || !',!&^'.includes(character))) continue
    const operand = text.slice(start, at).trim()
    const where = start === 0 ? 'at the beginning' : `after "${operator}"`
    if (operand === '') throw notASet(text, `a name is missing ${where}`)
    yield { operator, operand }
    operator = character ?? ''
    start = at + 1
  }
}

const notASet = (text: string, reason: string) =>
  badRequest(`node set ${forMessage(text)}: ${reason}`, 'invalid-set')
