import {
  cluster,
  compare,
  conditions,
  doing,
  inOrder,
  orderOf,
  tally,
  whenChanged,
  wordOf
} from './cluster.js'
import { ago, button, count, fill, h, number, refill, soon, swatch, table } from './dom.js'
import { search } from './find.js'
import { Grid } from './grid.js'
import { Racks } from './racks.js'
import { Selection } from './select.js'

/** Options of the view, kept while another view is open. */
const wish = { by: 'group', as: 'grid', text: '', only: new Set(), page: 0, sort: 'name' }
const perPage = 100

/** Values of each option; the first one is omitted in the address. */
const choices = {
  by: ['group', 'rack', 'condition', 'none'],
  as: ['grid', 'table', 'racks'],
  sort: ['name', 'condition', 'group', 'rack', 'since']
}

/** Returns the address of the nodes that match a text. */
export const linkTo = text => `#/cluster?${new URLSearchParams({ find: text })}`

/**
 * The address holds the options, so that it can be sent to somebody; without a query the last options are
 * used.
 */
function readAddress() {
  const [, question] = location.hash.split('?')
  if (question === undefined) return
  const asked = new URLSearchParams(question)
  for (const [key, all] of Object.entries(choices))
    wish[key] = all.includes(asked.get(key)) ? asked.get(key) : all[0]
  wish.text = asked.get('find') ?? ''
  wish.only = new Set((asked.get('only') ?? '').split(',').filter(key => Object.hasOwn(orderOf, key)))
  wish.page = Math.max(0, Math.floor(Number(asked.get('page')) - 1) || 0)
}

function writeAddress() {
  const { text, only, page } = wish
  const told = { find: text, only: [...only].join(','), page: page > 0 ? page + 1 : '' }
  for (const [key, [usual]] of Object.entries(choices)) told[key] = wish[key] === usual ? '' : wish[key]
  const question = new URLSearchParams(Object.entries(told).filter(([, value]) => value !== ''))
  history.replaceState(null, '', `#/cluster${question.size > 0 ? `?${question}` : ''}`)
}

/** Shows the cluster at a glance. Returns a function that ends the view. */
export function clusterView(place, { isAdmin, mayAct }) {
  readAddress()
  const counts = h('div', { class: 'counts', role: 'group', 'aria-label': 'Show only nodes that are' })
  const tools = h('div', { class: 'tools' })
  const body = h('div', { class: 'nodes' })
  const told = h('p', { class: 'told', role: 'status' })
  const grid = new Grid(name => {
    location.hash = `#/node/${encodeURIComponent(name)}`
  })
  grid.connect()
  const racks = new Racks()
  let shown
  let visible = []
  const selection = mayAct() ? new Selection(() => visible, body, isAdmin()) : undefined

  const filter = h('input', {
    type: 'search',
    id: 'filter',
    value: wish.text,
    placeholder: 'name, group, rack 12, state, address, @set',
    autocomplete: 'off',
    spellcheck: false,
    oninput: soon(120, () => {
      wish.text = filter.value
      wish.page = 0
      draw()
    })
  })
  const choice = (key, label) =>
    h(
      'label',
      {},
      h('span', {}, label),
      h(
        'select',
        {
          onchange: event => {
            wish[key] = event.target.value
            wish.page = 0
            draw()
          }
        },
        choices[key].map(value =>
          h('option', { value, selected: wish[key] === value }, value === 'none' ? 'nothing' : value)
        )
      )
    )
  fill(
    tools,
    h('label', { class: 'wide' }, h('span', {}, 'Find'), filter),
    choice('by', 'Group by'),
    choice('as', 'Show as')
  )
  fill(place, h('h1', { class: 'unseen' }, 'Cluster'), counts, tools, told, selection?.element, body)

  function drawCounts() {
    const numbers = tally(cluster.nodes.values())
    fill(
      counts,
      conditions.map(({ key, word, meaning }) =>
        h(
          'button',
          {
            type: 'button',
            class: 'count',
            title: meaning,
            'data-none': numbers[key] === 0 ? 'yes' : undefined,
            'data-key': key,
            'aria-pressed': String(wish.only.has(key)),
            onclick: () => {
              if (!wish.only.delete(key)) wish.only.add(key)
              wish.page = 0
              draw()
              counts.querySelector(`[data-key=${key}]`)?.focus()
            }
          },
          swatch(key),
          h('strong', {}, number(numbers[key])),
          ` ${word}`
        )
      )
    )
  }

  function showOnly(text) {
    Object.assign(wish, { text, only: new Set(), page: 0 })
    filter.value = text
    draw()
    filter.focus()
  }

  function draw() {
    drawCounts()
    const all = inOrder()
    const { matches, problem } = search(wish.text, all, redrawAll)
    const nodes = all.filter(node => (wish.only.size === 0 || wish.only.has(node.condition)) && matches(node))
    visible = nodes
    const odd = all.filter(node => node.odd).length
    const isAll = nodes.length === all.length
    fill(
      told,
      isAll ? count(all.length, 'node') : `${number(nodes.length)} of ${count(all.length, 'node')}`,
      !isAll && button('Show all', () => showOnly(''), { class: 'quiet' }),
      odd > 0 && button(`${count(odd, 'node')} unlike the others`, () => showOnly('odd'), { class: 'quiet' })
    )
    if (all.length === 0) {
      shown = undefined
      fill(
        body,
        h('p', { class: 'empty' }, 'There is no node yet. docs/howto.md tells how to make the first one.')
      )
    } else if (nodes.length === 0) {
      shown = undefined
      fill(body, h('p', { class: 'empty' }, problem ?? 'No node is like that.'))
    } else if (wish.as === 'table') {
      shown = undefined
      drawTable(nodes)
    } else {
      if (shown !== wish.as) fill(body, (wish.as === 'grid' ? grid : racks).element)
      shown = wish.as
      if (shown === 'grid') grid.show(sectionsOf(nodes))
      else racks.show(nodes)
    }
    selection?.draw()
    writeAddress()
  }

  function drawTable(nodes) {
    const sorted = [...nodes]
    const keys = {
      name: (a, b) => compare(a.name, b.name),
      condition: (a, b) => orderOf[a.condition] - orderOf[b.condition],
      group: (a, b) => compare(a.group ?? '', b.group ?? ''),
      rack: (a, b) => compare(a.rack ?? '', b.rack ?? ''),
      since: (a, b) => Math.max(b.since ?? 0, b.stepped ?? 0) - Math.max(a.since ?? 0, a.stepped ?? 0)
    }
    if (wish.sort !== 'name') sorted.sort(keys[wish.sort])
    visible = sorted
    const pages = Math.ceil(sorted.length / perPage)
    wish.page = Math.min(wish.page, pages - 1)
    const sortBy = key => {
      wish.sort = key
      draw()
      body.querySelector(`[data-key=${key}]`)?.focus()
    }
    const head = (key, text) => {
      const by = button(text, () => sortBy(key), { class: 'sort', 'data-key': key })
      return h('th', { scope: 'col', 'aria-sort': wish.sort === key ? 'ascending' : 'none' }, by)
    }
    const goTo = page => {
      wish.page = page
      draw()
      body.querySelector('.scroll').focus()
    }
    const turn = (text, page, isOff) => button(text, () => goTo(page), { disabled: isOff })
    const heads = [
      ...[head('name', 'Node'), head('condition', 'Condition'), 'State', head('since', 'Last heard')],
      ...[head('group', 'Group'), head('rack', 'Rack'), 'Image']
    ]
    const rows = sorted.slice(wish.page * perPage, (wish.page + 1) * perPage)
    refill(
      body,
      table(
        `Nodes, page ${wish.page + 1} of ${pages}`,
        heads,
        rows.map(node => rowOf(node, selection))
      ),
      pages > 1 &&
        h(
          'nav',
          { class: 'pager', 'aria-label': 'Pages of the table' },
          turn('‹ Back', wish.page - 1, wish.page === 0),
          h('span', {}, `${wish.page + 1} of ${pages}`),
          turn('Next ›', wish.page + 1, wish.page === pages - 1)
        )
    )
  }

  let isOver = false
  const redrawAll = soon(150, () => isOver || draw())
  const redrawCounts = soon(100, () => isOver || drawCounts())
  draw()
  const end = whenChanged(names => {
    const mayMove = wish.only.size > 0 || wish.text !== '' || wish.by === 'condition'
    if (names === undefined || wish.as === 'table' || mayMove || shown !== 'grid') redrawAll()
    else {
      grid.update(names, cluster.nodes)
      redrawCounts()
    }
  })
  return () => {
    isOver = true
    end()
    grid.disconnect()
    racks.disconnect()
  }
}

function rowOf(node, selection) {
  const heard = Math.max(node.since ?? 0, node.stepped ?? 0)
  const link = h('a', { href: `#/node/${encodeURIComponent(node.name)}` }, node.name)
  const odd = node.odd && h('span', { class: 'bad', title: node.odd }, ' ≠ odd')
  const distrust = node.trust?.startsWith('bad') && h('span', { class: 'bad', title: node.trust }, ' ✗ trust')
  return [
    h('th', { scope: 'row' }, selection?.box(node.name), link, odd, distrust),
    badge(node.condition),
    h('span', { class: 'clip' }, doing(node)),
    heard > 0 ? ago(heard) : '–',
    ...[node.group, node.rack, node.osimage].map(text => text ?? '–')
  ]
}

/** Shows a condition as a word with its colour. */
export const badge = condition => h('span', { class: 'badge' }, swatch(condition), wordOf[condition])

function sectionsOf(nodes) {
  if (wish.by === 'none') return [{ title: 'All nodes', nodes }]
  const sections = new Map()
  for (const node of nodes) {
    const value = node[wish.by]
    const title =
      value === null
        ? `no ${wish.by}`
        : wish.by === 'rack'
          ? `rack ${value}`
          : wish.by === 'group'
            ? value
            : wordOf[value]
    const section = sections.get(title)
    if (section) section.nodes.push(node)
    else sections.set(title, { title, key: value, nodes: [node] })
  }
  const all = [...sections.values()]
  if (wish.by === 'condition') return all.sort((a, b) => orderOf[a.key] - orderOf[b.key])
  return all.sort((a, b) => (a.key === null) - (b.key === null) || compare(a.title, b.title))
}
