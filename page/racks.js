import { compare, wordOf } from './cluster.js'
import { count, fill, h, number, refill, swatch } from './dom.js'

/** Units of a rack, if no node is higher; a number above `most` is no unit. */
const usual = 42
const most = 100
const mostLoose = 200

/** Returns the lowest and the highest unit of a node; undefined for a node without a unit. */
function unitsOf({ rack_unit: unit, rack_height: height }) {
  const [from, units] = [unit, height].map(text => (/^[1-9]\d{0,2}$/.test(text ?? '') ? Number(text) : 0))
  return from > 0 && from <= most ? { from, to: Math.min(most, from + Math.max(units, 1) - 1) } : undefined
}

const link = (node, more = '') =>
  h(
    'a',
    { href: `#/node/${encodeURIComponent(node.name)}`, class: 'unit', 'data-name': node.name },
    swatch(node.condition),
    ` ${node.name} ${node.odd ? '≠ ' : ''}`,
    h('span', { class: more ? 'bad' : 'faint' }, `${wordOf[node.condition]}${more}`)
  )

/** Racks with nodes in their units. Only racks near the screen have elements of their nodes. */
export class Racks {
  element = h('div', { class: 'racks' })
  #sections = new Map()
  #near = new Set()
  #observer = new IntersectionObserver(
    entries => {
      for (const { target, isIntersecting } of entries) {
        this.#near[isIntersecting ? 'add' : 'delete'](target)
        this.#draw(target)
      }
    },
    { rootMargin: '800px' }
  )

  disconnect() {
    this.#observer.disconnect()
  }

  /** Shows nodes; those without a rack come last. */
  show(nodes) {
    const racks = new Map()
    for (const node of nodes) {
      const of = racks.get(node.rack) ?? { placed: [], loose: [], height: usual }
      racks.set(node.rack, of)
      const units = node.rack === null ? undefined : unitsOf(node)
      if (units) of.placed.push({ node, ...units })
      else of.loose.push(node)
      of.height = Math.max(of.height, units?.to ?? 0)
    }
    const before = this.#sections
    this.#sections = new Map()
    const order = [...racks.keys()].sort((a, b) => (a === null) - (b === null) || compare(a ?? '', b ?? ''))
    for (const rack of order) {
      const title = rack === null ? 'Without a rack' : `Rack ${rack}`
      const section = before.get(rack) ?? h('section', { class: 'rack', 'aria-label': title })
      Object.assign(section, { title, rack: racks.get(rack) })
      section.style.setProperty('--units', String(rack === null ? 0 : section.rack.height))
      this.#sections.set(rack, section)
      if (!before.has(rack)) this.#observer.observe(section)
      this.#draw(section)
    }
    for (const [rack, section] of before) if (!this.#sections.has(rack)) this.#observer.unobserve(section)
    const all = [...this.#sections.values()]
    if (all.some((section, i) => section !== this.element.children[i]) || before.size !== all.length)
      fill(this.element, all)
  }

  #draw(section) {
    if (!this.#near.has(section)) return fill(section)
    const { placed, loose, height } = section.rack
    const used = new Array(most + 1).fill(0)
    for (const { from, to } of placed) for (let i = from; i <= to; i++) used[i]++
    // Nodes that overlap stand side by side.
    const ends = []
    const items = placed
      .sort((a, b) => a.from - b.from)
      .map(({ node, from, to }) => {
        const free = ends.findIndex(end => end < from)
        const lane = free < 0 ? ends.length : free
        ends[lane] = to
        const overlaps = used.slice(from, to + 1).some(n => n > 1)
        const item = h('li', { class: overlaps ? 'overlap' : '' }, link(node, overlaps ? ', overlaps' : ''))
        item.style.gridArea = `${height - to + 1} / ${lane + 1} / span ${to - from + 1}`
        return item
      })
    const numbers = Array.from({ length: height }, (_, i) => height - i).join('\n')
    refill(
      section,
      h(
        'h2',
        {},
        section.title,
        h('span', { class: 'faint' }, ` ${count(placed.length + loose.length, 'node')}`)
      ),
      items.length > 0 &&
        h(
          'div',
          { class: 'units' },
          h('div', { 'aria-hidden': 'true' }, numbers),
          h('ol', {}, items.reverse())
        ),
      items.length > 0 && loose.length > 0 && h('h3', {}, 'Without a unit'),
      loose.length > 0 &&
        h(
          'ul',
          { class: 'plain' },
          loose.slice(0, mostLoose).map(node => h('li', {}, link(node)))
        ),
      loose.length > mostLoose && h('p', { class: 'faint' }, `and ${number(loose.length - mostLoose)} more`)
    )
  }
}
