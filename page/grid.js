import { conditions, doing, wordOf } from './cluster.js'
import { number } from './dom.js'

/** Cell sizes in pixels by the number of nodes; large cells show names. */
const densities = [
  // If all nodes fit on the screen, cells are larger and show more.
  ...[2, 1.5, 1].map(scale => ({
    upTo: 0,
    width: 220 * scale,
    height: 76 * scale,
    gap: 8,
    hasNames: true,
    scale
  })),
  { upTo: 150, width: 136, height: 40, gap: 6, hasNames: true },
  { upTo: 700, width: 20, height: 20, gap: 3 },
  { upTo: 3500, width: 14, height: 14, gap: 3 },
  { upTo: Number.POSITIVE_INFINITY, width: 9, height: 9, gap: 2 }
]
const headHeight = 26
const sectionGap = 14
/** Pixels painted above and below the visible part. */
const overscan = 400

/**
 * Paints nodes as cells in sections. Only the visible part is painted, so that ten thousand nodes take no
 * longer. It is a list box: arrow keys move between nodes, Enter opens one, and a screen reader announces the
 * selected node.
 */
export class Grid {
  #box
  #canvas
  #option
  #tip
  #sections = []
  #cells = []
  #density = densities[0]
  #columns = 1
  #height = 0
  #painted
  #colours = {}
  #frame
  #chosen = -1
  #indexOf = new Map()

  /** `open` is called with the name of a node that was clicked or selected with Enter. */
  constructor(open) {
    this.open = open
    this.#canvas = document.createElement('canvas')
    this.#canvas.setAttribute('aria-hidden', 'true')
    this.#option = document.createElement('div')
    this.#option.id = 'grid-option'
    this.#option.className = 'unseen'
    this.#option.setAttribute('role', 'option')
    this.#tip = document.createElement('div')
    this.#tip.className = 'tip'
    this.#tip.hidden = true
    this.#tip.setAttribute('aria-hidden', 'true')
    this.#box = document.createElement('div')
    this.#box.className = 'grid'
    this.#box.tabIndex = 0
    this.#box.setAttribute('role', 'listbox')
    this.#box.setAttribute('aria-label', 'Nodes. Arrow keys move, Enter opens.')
    this.#box.append(this.#canvas, this.#option, this.#tip)
    this.#box.addEventListener('keydown', event => this.#key(event))
    this.#box.addEventListener('focus', () => this.#choose(Math.max(this.#chosen, 0), false))
    this.#box.addEventListener('blur', () => this.paint())
    this.#canvas.addEventListener('click', event => {
      const i = this.#at(event)
      if (i >= 0) this.open(this.#cells[i].node.name)
    })
    this.#canvas.addEventListener('pointermove', event => this.#hover(event))
    this.#canvas.addEventListener('pointerleave', () => {
      this.#tip.hidden = true
    })
    this.#observer = new ResizeObserver(() => this.#layOut())
    this.#onScroll = () => this.#needsPaint() && this.paint()
    this.#onTheme = () => {
      this.#colours = {}
      this.paint()
    }
    this.#theme = matchMedia('(prefers-color-scheme: dark)')
  }
  #observer
  #onScroll
  #onTheme
  #theme

  get element() {
    return this.#box
  }

  connect() {
    this.#observer.observe(this.#box)
    addEventListener('scroll', this.#onScroll, { passive: true })
    this.#theme.addEventListener('change', this.#onTheme)
  }

  disconnect() {
    this.#observer.disconnect()
    removeEventListener('scroll', this.#onScroll)
    this.#theme.removeEventListener('change', this.#onTheme)
    cancelAnimationFrame(this.#frame)
  }

  /** Shows these sections: `{title, nodes}`. */
  show(sections) {
    const chosen = this.#cells[this.#chosen]?.node.name
    this.#sections = sections
    this.#layOut()
    this.#chosen = chosen === undefined ? -1 : (this.#indexOf.get(chosen) ?? -1)
    // A list box always needs an option with text.
    if (this.#chosen < 0 && this.#cells[0]) this.#option.textContent = this.#said(this.#cells[0].node)
  }

  /** Updates nodes whose positions are unchanged. */
  update(names, nodes) {
    for (const name of names) {
      const i = this.#indexOf.get(name)
      if (i !== undefined) this.#cells[i].node = nodes.get(name)
    }
    if (this.#chosen >= 0) this.#tell()
    this.paint()
  }

  #layOut() {
    const width = this.#box.clientWidth
    if (width === 0) return
    const total = this.#sections.reduce((sum, { nodes }) => sum + nodes.length, 0)
    const room = innerHeight - this.#box.getBoundingClientRect().top - scrollY - 20
    const columnsOf = of => Math.max(1, Math.floor((width + of.gap) / (of.width + of.gap)))
    const rowsOf = of =>
      this.#sections.reduce((n, { nodes }) => n + Math.ceil(nodes.length / columnsOf(of)), 0)
    const heads = this.#sections.length * (headHeight + sectionGap)
    const fits = of => rowsOf(of) * (of.height + of.gap) + heads <= room
    const chosen = densities.find(of => total <= of.upTo || fits(of))
    const { height, gap, hasNames } = chosen
    const most = Math.max(1, ...this.#sections.map(({ nodes }) => nodes.length))
    this.#columns = hasNames ? Math.min(columnsOf(chosen), most) : columnsOf(chosen)
    // Cells with names fill the row, up to twice their width.
    const filling = Math.min(2 * chosen.width, Math.floor((width + gap) / this.#columns - gap))
    const cell = hasNames ? filling : chosen.width
    this.#density = { ...chosen, width: cell }
    this.#cells = []
    this.#indexOf.clear()
    let y = 0
    for (const section of this.#sections) {
      section.y = y
      section.first = this.#cells.length
      y += headHeight
      for (let i = 0; i < section.nodes.length; i++) {
        const node = section.nodes[i]
        this.#indexOf.set(node.name, this.#cells.length)
        this.#cells.push({
          node,
          x: (i % this.#columns) * (cell + gap),
          y: y + Math.floor(i / this.#columns) * (height + gap)
        })
      }
      y += Math.ceil(section.nodes.length / this.#columns) * (height + gap) + sectionGap
    }
    this.#height = y
    this.#box.style.height = `${y}px`
    this.paint()
  }

  #needsPaint() {
    const { top } = this.#box.getBoundingClientRect()
    const [from, to] = [Math.max(0, -top), Math.min(this.#height, innerHeight - top)]
    return !this.#painted || from < this.#painted.from || to > this.#painted.to
  }

  /** Paints in the next frame. */
  paint() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined
      this.#paintNow()
    })
  }

  #paintNow() {
    const { top } = this.#box.getBoundingClientRect()
    const width = this.#box.clientWidth
    const from = Math.max(0, Math.floor(-top - overscan))
    const to = Math.min(this.#height, Math.ceil(innerHeight - top + overscan))
    if (to <= from || width === 0) return
    const scale = devicePixelRatio
    const canvas = this.#canvas
    canvas.width = Math.round(width * scale)
    canvas.height = Math.round((to - from) * scale)
    canvas.style.width = `${width}px`
    canvas.style.height = `${to - from}px`
    canvas.style.top = `${from}px`
    const c = canvas.getContext('2d')
    c.setTransform(scale, 0, 0, scale, 0, -from * scale)
    // Measured by a test.
    if (!this.#painted) performance.mark('svcd-grid')
    this.#painted = { from, to }
    const colours = this.#palette()
    const { width: cell, height, gap } = this.#density
    for (const section of this.#sections) {
      const rows = Math.ceil(section.nodes.length / this.#columns)
      const end = section.y + headHeight + rows * (height + gap)
      if (end < from || section.y > to) continue
      this.#head(c, section, width, colours)
      const firstRow = Math.max(0, Math.floor((from - section.y - headHeight) / (height + gap)))
      const lastRow = Math.ceil((to - section.y - headHeight) / (height + gap))
      const last = Math.min(section.nodes.length, lastRow * this.#columns)
      for (let i = firstRow * this.#columns; i < last; i++)
        this.#cell(c, this.#cells[section.first + i], this.#density, colours)
    }
    const chosen = this.#cells[this.#chosen]
    if (chosen && document.activeElement === this.#box) {
      c.strokeStyle = colours.focus
      c.lineWidth = 2
      c.strokeRect(chosen.x - 1, chosen.y - 1, cell + 2, height + 2)
    }
  }

  #head(c, { title, nodes, y }, width, colours) {
    c.font = `600 12px ${colours.font}`
    c.fillStyle = colours.text
    c.textBaseline = 'alphabetic'
    c.fillText(title, 0, y + 16, width - 120)
    const named = Math.min(c.measureText(title).width, width - 120)
    c.font = `12px ${colours.font}`
    c.fillStyle = colours.faint
    c.fillText(number(nodes.length), named + 8, y + 16)
  }

  #cell(c, { node, x, y }, { width, height, hasNames, scale }, colours) {
    const { condition } = node
    if (hasNames) {
      c.fillStyle = colours.surface
      c.fillRect(x, y, width, height)
      c.strokeStyle = colours.line
      c.lineWidth = 1
      c.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1)
      c.fillStyle = colours[condition]
      c.fillRect(x, y, 6, height)
      const place = [node.group, node.rack && `rack ${node.rack}`, node.osimage].filter(Boolean).join(' · ')
      const lines = [node.name, wordOf[condition], ...(scale === undefined ? [] : [doing(node), place])]
      for (const [i, text] of lines.entries()) {
        c.font = `${i === 0 ? 600 : 400} ${(i === 0 ? 12 : 11) * (scale ?? 1)}px ${colours.font}`
        c.fillStyle = i === 0 ? colours.text : colours.faint
        c.fillText(fitting(c, text, width - 20), x + 14, y + (17 + 15.5 * i) * (scale ?? 1))
      }
      return
    }
    c.fillStyle = colours[condition]
    c.fillRect(x, y, width, height)
    mark(c, condition, x, y, width, colours)
  }

  #palette() {
    if (this.#colours.text) return this.#colours
    const style = getComputedStyle(document.documentElement)
    const of = name => style.getPropertyValue(`--${name}`).trim()
    const names = ['text', 'faint', 'surface', 'line', 'focus', 'mark', ...conditions.map(({ key }) => key)]
    this.#colours = Object.fromEntries(names.map(name => [name, of(name)]))
    this.#colours.font = getComputedStyle(document.body).fontFamily
    return this.#colours
  }

  /** Returns the index of the cell under the pointer, -1 for none. */
  #at(event) {
    const { left, top } = this.#box.getBoundingClientRect()
    const [x, y] = [event.clientX - left, event.clientY - top]
    const { width: cell, height, gap } = this.#density
    for (const section of this.#sections) {
      const inner = y - section.y - headHeight
      const column = Math.floor(x / (cell + gap))
      const row = Math.floor(inner / (height + gap))
      const i = row * this.#columns + column
      if (inner >= 0 && column < this.#columns && i < section.nodes.length) {
        const found = section.first + i
        const { y: top } = this.#cells[found]
        if (y < top + height + gap) return found
      }
    }
    return -1
  }

  #hover(event) {
    const i = this.#at(event)
    this.#canvas.style.cursor = i < 0 ? 'default' : 'pointer'
    this.#tip.hidden = i < 0
    if (i < 0) return
    const { node, x, y } = this.#cells[i]
    this.#tip.textContent = this.#said(node)
    const width = this.#box.clientWidth
    this.#tip.style.left = `${Math.min(x + 12, Math.max(0, width - 240))}px`
    this.#tip.style.top = `${y + this.#density.height + 6}px`
  }

  #said(node) {
    const state = node.reason ?? node.state
    const more = state && !state.endsWith(wordOf[node.condition]) ? ` · ${state}` : ''
    return `${node.name}: ${wordOf[node.condition]}${more}${node.odd ? ` · odd: ${node.odd}` : ''}`
  }

  #key(event) {
    const { key } = event
    const last = this.#cells.length - 1
    if (last < 0) return
    const i = Math.max(this.#chosen, 0)
    const steps = {
      ArrowRight: i + 1,
      ArrowLeft: i - 1,
      ArrowDown: this.#below(i, 1),
      ArrowUp: this.#below(i, -1),
      PageDown: i + this.#columns * 10,
      PageUp: i - this.#columns * 10,
      Home: 0,
      End: last
    }
    if (key === 'Enter' || key === ' ') {
      event.preventDefault()
      if (this.#cells[i]) this.open(this.#cells[i].node.name)
    } else if (key in steps) {
      event.preventDefault()
      this.#choose(Math.min(Math.max(steps[key], 0), last))
    }
  }

  /** Returns the cell below or above, also across sections. */
  #below(i, direction) {
    const { x, y } = this.#cells[i]
    let best = i
    for (let j = i + direction; j >= 0 && j < this.#cells.length; j += direction) {
      const cell = this.#cells[j]
      if (cell.y === y) continue
      if (best !== i && cell.y !== this.#cells[best].y) break
      if (best === i || Math.abs(cell.x - x) < Math.abs(this.#cells[best].x - x)) best = j
    }
    return best
  }

  #choose(i, scrolls = true) {
    this.#chosen = i
    const cell = this.#cells[i]
    if (!cell) return
    this.#box.setAttribute('aria-activedescendant', 'grid-option')
    this.#tell()
    if (scrolls) {
      const { top } = this.#box.getBoundingClientRect()
      const y = top + cell.y
      if (y < 120) scrollBy(0, y - 160)
      else if (y + this.#density.height > innerHeight - 40)
        scrollBy(0, y + this.#density.height - innerHeight + 80)
    }
    this.paint()
  }

  #tell() {
    const cell = this.#cells[this.#chosen]
    if (!cell) return
    this.#option.textContent = this.#said(cell.node)
    this.#option.setAttribute('aria-selected', 'true')
  }
}

/** Draws a mark, so that no condition is shown by colour alone. */
function mark(c, condition, x, y, size, colours) {
  const [near, far] = [size * 0.28, size * 0.72]
  c.strokeStyle = c.fillStyle = colours.mark
  c.lineWidth = Math.max(1.25, size / 9)
  c.beginPath()
  if (condition === 'failed') {
    c.moveTo(x + near, y + near)
    c.lineTo(x + far, y + far)
    c.moveTo(x + far, y + near)
    c.lineTo(x + near, y + far)
    c.stroke()
  } else if (condition === 'stalled') {
    c.moveTo(x + near, y + size / 2)
    c.lineTo(x + far, y + size / 2)
    c.stroke()
  } else if (condition === 'installing') {
    c.moveTo(x + near, y + size * 0.4)
    c.lineTo(x + size / 2, y + size * 0.66)
    c.lineTo(x + far, y + size * 0.4)
    c.stroke()
  } else if (condition === 'booting') {
    c.arc(x + size / 2, y + size / 2, Math.max(1.2, size * 0.14), 0, 7)
    c.fill()
  } else if (condition === 'stale') {
    c.moveTo(x + size, y)
    c.lineTo(x + size, y + size * 0.5)
    c.lineTo(x + size * 0.5, y)
    c.fill()
  }
}

function fitting(c, text, width) {
  if (c.measureText(text).width <= width) return text
  let cut = text
  while (cut.length > 1 && c.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1)
  return `${cut}…`
}
