import { setImmediate as nextTurn } from 'node:timers/promises'
import { nodesFor } from '../../lib/api/node-sets.js'
import { runSliced } from '../../lib/base/concurrency.js'
import { ServiceError } from '../../lib/base/errors.js'
import type { Controller } from '../support/controller.js'
import { usage } from '../support/turns.js'
import type { Random } from './random.js'

/** Characters of the longest texts: as many as the body of a viewer may have. */
const LONGEST = 1024 * 1024

/** Sizes of which small ones are frequent and each order of magnitude up to `most` is there. */
const size = (random: Random, most: number) => Math.floor(most ** random.next())

const operators = [',', ',', ',', '!', '&', '^']
const groups = ['@all', '@compute', '@empty', '@osimage:compute', '@stale:yes', '@status:installer.failed']

function number(random: Random): string {
  const digits = random.is(0.01) ? size(random, 2000) : 1 + random.below(3)
  return Array.from({ length: digits }, () => random.below(10)).join('')
}

function range(random: Random, isLarge: boolean): string {
  if (random.is(0.3)) return number(random)
  const low = random.below(random.is(0.1) ? 12_000 : 1000)
  const high =
    low +
    size(random, random.is(0.002) ? 1e15 : !isLarge ? 40 : random.is(0.05) ? 9000 : 300) -
    (random.is(0.02) ? 1 : 0)
  const width = random.is(0.05) ? random.below(8) : 0
  const by = random.is(0.1) ? `/${random.below(5)}` : ''
  return `${String(low).padStart(width, '0')}-${String(high).padStart(width, '0')}${by}`
}

function bracket(random: Random, isLarge = false): string {
  if (random.is(0.01)) return random.pick(['[', ']', '[[', ']]', '[]', '[1', '[-1]', '[a]', '[1-2', '[,]'])
  const count = random.is(0.01) ? size(random, 2000) : 1 + random.below(3)
  const blank = random.is(0.05) ? ' '.repeat(size(random, 50)) : ''
  return `[${Array.from({ length: count }, () => blank + range(random, isLarge)).join(',')}]`
}

function operand(random: Random, most: number): string {
  const isLarge = most > 60
  if (random.is(isLarge ? 0.02 : 0.002)) return random.pick(groups)
  if (random.is(0.005))
    return `@${random.pick(['status:', 'osimage:', 'rack', 'stale:', ''])}${bracket(random)}${'w'.repeat(size(random, 50))}`
  if (random.is(0.02))
    return random.pick(['x', '7', '1-', 'é', '\u202e', ' ', 'a.']).repeat(size(random, most))
  let text = random.is(0.9) ? 'n' : random.pick(['node', 'r1-', 'x', '9'])
  const brackets = random.is(isLarge ? 0.01 : 0.001) ? random.below(12) : random.below(2)
  for (let i = 0; i < brackets; i++) text += bracket(random, isLarge) + (i > 0 || random.is(0.1) ? 'y' : '')
  return brackets === 0 ? text + random.below(random.is(0.02) ? 11_000 : 1000) : text
}

/** A text that is, or nearly is, a node set; a few have more than a million characters. */
export function nodeSet(random: Random): string {
  const most = random.is(0.03) ? (random.is(0.02) ? LONGEST : 4000) : 150
  const wanted = size(random, most)
  const same = random.is(0.1) ? operand(random, wanted) : undefined
  let text = ''
  do {
    const next = same ?? operand(random, wanted)
    text += text === '' ? next : random.pick(operators) + next
    if (random.is(0.005)) text += random.pick([',', '!!', '^', ' ', '[', ']', '@'])
  } while (text.length < wanted)
  return text
}

/** What came of evaluating many sets. */
export interface Turns {
  readonly sets: number
  readonly refused: number
  readonly characters: number
  readonly longestSet: number
  /** Milliseconds of the processor. */
  readonly longestTurn: number
  /** The turns of more than so many milliseconds, by their number. */
  readonly above: Readonly<Record<number, number>>
  /** The set of the longest turn, cut. */
  readonly of: string
}

/**
 * Evaluates generated sets on the nodes of a controller one after the other, and measures each turn of the
 * event loop.
 */
export async function turnsOf(
  { daemon }: Controller,
  random: Random,
  sets: number,
  progress: (so: Turns) => void = () => {}
): Promise<Turns> {
  const state = (name: string) =>
    name.endsWith('7') ? 'installer.failed: unpack: no space' : 'installer.completed'
  const status = { state, history: (name: string) => [{ state: state(name), time: '' }] }
  const parts = { model: daemon.model, boots: daemon.boots, status } as unknown as Parameters<
    typeof nodesFor
  >[0]
  const used = usage()
  const bounds = [10, 20, 30, 50]
  const above: Record<number, number> = {}
  let [refused, characters, longestSet, longest, of] = [0, 0, 0, 0, '']
  let set = ''
  let before = used()
  let isBusy = true
  const turn = () => {
    const now = used()
    const ms = now - before
    for (const bound of bounds) if (ms > bound) above[bound] = (above[bound] ?? 0) + 1
    if (ms > longest) {
      longest = ms
      of = `${set.length} characters: ${set.slice(0, 100)}`
    }
    if (isBusy) setImmediate(turn)
    before = used()
  }
  setImmediate(turn)
  const told = (sets: number): Turns => ({
    sets,
    refused,
    characters,
    longestSet,
    longestTurn: longest,
    above,
    of
  })
  for (let i = 0; i < sets; i++) {
    if (i % 20_000 === 0) progress(told(i))
    set = nodeSet(random)
    characters += set.length
    longestSet = Math.max(longestSet, set.length)
    // What it takes to make the set is none of svcd's time.
    before = used()
    try {
      await runSliced(nodesFor(parts, { kind: 'anonymous' }, set, daemon.model.view))
    } catch (error) {
      if (!(error instanceof ServiceError) || error.message.length > 1000) throw error
      refused++
    }
    await nextTurn()
  }
  isBusy = false
  return told(sets)
}
