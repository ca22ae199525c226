import { read } from './api.js'

/** Conditions of a node, worst first, each with its word, its meaning and its mark in the grid. */
export const conditions = [
  { key: 'failed', word: 'failed', meaning: 'the installation failed, or it cannot boot' },
  {
    key: 'stalled',
    word: 'stalled',
    meaning: 'it was booting or installing, and nothing came for five minutes'
  },
  { key: 'installing', word: 'installing', meaning: 'its installation goes on' },
  { key: 'booting', word: 'booting', meaning: 'it has begun to boot' },
  {
    key: 'stale',
    word: 'outdated',
    meaning: 'it is up, and would get something else if it were started anew'
  },
  { key: 'up', word: 'up', meaning: 'it is installed, or tells that it is up' },
  { key: 'unknown', word: 'not seen', meaning: 'nothing is known of it, or it boots from its disk' }
]
export const wordOf = Object.fromEntries(conditions.map(({ key, word }) => [key, word]))
export const orderOf = Object.fromEntries(conditions.map(({ key }, i) => [key, i]))

/** The same limit as in verdicts (rules 6.7). */
const stalledMs = 5 * 60_000
const bootSteps = new Set(['menu', 'script', 'kernel', 'initramfs', 'file', 'kickstart'])
const installSteps = new Set(['install', 'image', 'torrent', 'report'])
const badSteps = new Set(['no-script', 'no-file', 'refused', 'bmc'])

/** Returns the condition of a node, from its last state and its last step. */
export function conditionOf(node, now = Date.now()) {
  if (node.reason) return 'failed'
  const stepped = node.stepped ?? 0
  const since = node.since ?? 0
  const last = Math.max(stepped, since)
  // A report is a step too, recorded a moment before the state.
  const isStep = node.step && node.step !== 'report' && stepped > since + 1000
  const going = word => (now - last > stalledMs ? 'stalled' : word)
  if (isStep) {
    if (badSteps.has(node.step)) return 'failed'
    if (node.step === 'running') return node.stale ? 'stale' : 'up'
    if (node.step === 'disk')
      return now - last > stalledMs ? (node.pack ? (node.stale ? 'stale' : 'up') : 'unknown') : 'booting'
    if (bootSteps.has(node.step)) return going('booting')
    if (installSteps.has(node.step)) return going('installing')
  }
  const { state } = node
  if (state === null) return node.step ? going('booting') : 'unknown'
  if (/^installer\.failed\b/.test(state)) return 'failed'
  if (/^running\./.test(state)) return 'failed'
  if (/^installer\.completed\b/.test(state)) return node.stale ? 'stale' : 'up'
  if (/^install/.test(state)) return going('installing')
  return node.pack && node.stale ? 'stale' : 'up'
}

/** Describes in a few words what a node does. */
export function doing(node) {
  if (node.reason) return node.reason
  const isStep = node.step && node.step !== 'report' && (node.stepped ?? 0) > (node.since ?? 0) + 1000
  if (isStep) return node.step === 'running' ? 'running' : `boot: ${node.step}`
  return node.state ?? ''
}

/** All nodes by name, kept up to date by events. */
export const cluster = {
  nodes: new Map(),
  /** Grows with each change. */
  version: 0,
  /** undefined before the first load. */
  mark: undefined,
  isUnsorted: false
}

const listeners = new Set()
/**
 * Calls `listener` after changes with the changed names (undefined: all). Returns a function that ends that.
 */
export function whenChanged(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}
const tell = names => {
  cluster.version++
  for (const listener of listeners) listener(names)
}

const withCondition = node => Object.assign(node, { condition: conditionOf(node) })

let loading
/** Loads everything again; events that arrive meanwhile are applied afterwards. */
export function load() {
  loading ??= (async () => {
    waiting = []
    try {
      const { overview } = (await read('/monitor/overview')).monitor
      const { columns } = overview
      const nodes = new Map()
      for (const values of overview.nodes) {
        const node = {}
        for (let i = 0; i < columns.length; i++) node[columns[i]] = values[i]
        nodes.set(node.name, withCondition(node))
      }
      cluster.nodes = nodes
      cluster.mark = overview.mark
      cluster.isUnsorted = false
      const came = waiting
      waiting = undefined
      tell(undefined)
      for (const data of came) apply(data)
      if (came.length > 0) tell(undefined)
    } finally {
      waiting = undefined
      loading = undefined
    }
  })()
  return loading
}
/** Events that arrive during a load. */
let waiting

function apply(data) {
  if (data.gone) cluster.nodes.delete(data.name)
  else {
    if (!cluster.nodes.has(data.name)) cluster.isUnsorted = true
    cluster.nodes.set(data.name, withCondition(data))
  }
}

const { compare } = new Intl.Collator('en', { numeric: true })

export { compare }

/** Returns all nodes, sorted by name. */
export function inOrder() {
  if (cluster.isUnsorted) {
    cluster.nodes = new Map([...cluster.nodes].sort(([a], [b]) => compare(a, b)))
    cluster.isUnsorted = false
  }
  return [...cluster.nodes.values()]
}

/** Applies `node` events. */
export function take(rows) {
  if (waiting) {
    waiting.push(...rows)
    return
  }
  let isMore = false
  const names = new Set()
  for (const data of rows) {
    if (data.gone || !cluster.nodes.has(data.name)) isMore = true
    const before = cluster.nodes.get(data.name)
    if (before && (before.group !== data.group || before.rack !== data.rack)) isMore = true
    apply(data)
    names.add(data.name)
  }
  tell(isMore ? undefined : names)
}

// A node becomes stalled by the passing of time.
setInterval(() => {
  const names = new Set()
  for (const node of cluster.nodes.values()) {
    const before = node.condition
    if (withCondition(node).condition !== before) names.add(node.name)
  }
  if (names.size > 0) tell(names)
}, 20_000)

/** Counts the nodes of each condition. */
export function tally(nodes) {
  const counts = Object.fromEntries(conditions.map(({ key }) => [key, 0]))
  for (const { condition } of nodes) counts[condition]++
  return counts
}
