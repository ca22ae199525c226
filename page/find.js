import { read } from './api.js'
import { wordOf } from './cluster.js'

/** Lifetime of cached answers: node sets get new members, and comments change. */
const keptMs = 60_000
const asked = new Map()
/** Node sets in one text: each is a request, and all answers must fit the cache. */
const mostSets = 20

/**
 * Returns a recent answer for a key; undefined while it is being fetched. Calls `again` when it has arrived.
 */
function lately(key, path, taken, again) {
  const known = asked.get(key)
  if (known && Date.now() - known.at < keptMs) return Object.assign(known, { again }).value
  // The previous value is shown until the answer arrives.
  const entry = { at: Date.now(), value: known?.value, again }
  if (asked.size > 2 * mostSets) asked.delete(asked.keys().next().value)
  asked.set(key, entry)
  const refused = ({ message }) => ({ problem: message })
  read(path)
    .then(({ config }) => taken(Object.values(config.node)), refused)
    .then(value => {
      entry.value = value
      // Of the view that asked last.
      entry.again()
    })
  return entry.value
}

/** Addresses, MACs and comments of nodes, which the overview lacks. */
const detailsOf = nodes => ({
  of: new Map(
    nodes.map(({ name, comment, interfaces }) => {
      const macs = interfaces.map(({ macaddress }) => macaddress ?? '')
      const addresses = interfaces.map(({ ipaddress }) => ipaddress ?? '')
      return [
        name,
        { addresses, macs: macs.map(bare), texts: [comment ?? '', ...addresses, ...macs].map(small) }
      ]
    })
  )
})

const small = text => text.toLowerCase()
const bare = mac => small(mac).replace(/[:.-]/g, '')
const isSet = /[[@,!&^*]/
const isAddress = /^\d+(\.\d+){3}$/
const isMac = /^([\da-f]{2}[:-]){2,}[\da-f]{0,2}$|^([\da-f]{4}\.){2}[\da-f]{4}$|^[\da-f]{12}$/

/**
 * Compiles a search text: returns a predicate for nodes, and why a node set in the text is invalid. `rack 12`
 * is exactly that rack; an address or a MAC must match as a whole; a word with `@`, `[`, `*` or an operator
 * is a node set. Calls `again` when more is known.
 */
export function search(text, nodes, again) {
  const [before, rest] = small(text).split(/(?:^|\s)rack[\s:=]+(?=\S)(.*)/s)
  const racks = rest === undefined ? [] : [...new Set(nodes.map(({ rack }) => small(rack ?? '')))]
  // The name of a rack may contain blanks: the longest match wins.
  const begins = racks.filter(rack => rack !== '' && `${rest.trimEnd()} `.startsWith(`${rack} `))
  const rack = begins.sort((a, b) => b.length - a.length)[0] ?? rest?.split(/\s/)[0]
  const words = `${before} ${rest?.slice(rack.length) ?? ''}`.split(/\s+/).filter(Boolean)
  const fields = 'fields=name,comment,interfaces'
  const details = words.length > 0 ? lately('', `/config/node?${fields}`, detailsOf, again) : undefined
  let problem =
    words.filter(word => isSet.test(word)).length > mostSets ? `more than ${mostSets} node sets` : undefined
  const tests = words.map(word => {
    const path = `/config/node?fields=name&nodes=${encodeURIComponent(word)}`
    const namesOf = found => ({ names: new Set(found.map(({ name }) => name)) })
    const set = isSet.test(word) && problem === undefined ? lately(word, path, namesOf, again) : undefined
    problem ??= set?.problem
    if (set?.names) return ({ name }) => set.names.has(name)
    return node => {
      const { addresses = [], macs = [], texts = [] } = details?.of?.get(node.name) ?? {}
      if (isAddress.test(word)) return addresses.includes(word)
      if (isMac.test(word) && macs.some(mac => mac.includes(bare(word)))) return true
      const { name, group, rack, osimage, state, condition, odd } = node
      const told = [name, group, rack, rack && 'rack', osimage, state, wordOf[condition], odd && 'odd'].map(
        value => small(value ?? '')
      )
      return [...told, ...texts].some(value => value.includes(word))
    }
  })
  if (rack !== undefined) tests.push(node => small(node.rack ?? '') === rack)
  return { problem, matches: node => tests.every(test => test(node)) }
}
