import { post, read } from './api.js'
import { compare } from './cluster.js'
import { confirm, notice } from './dialog.js'
import { ago, button, count, fill, h, number, refill, size, soon, table, terms } from './dom.js'
import { loaded } from './lists.js'

/** The orders in which machines get names. */
const orders = {
  time: ['first'],
  serial: ['serial', 'mac'],
  port: ['switch', 'port', 'mac'],
  mac: ['mac']
}
/** Columns of the table of new nodes, each with what the machine says. */
const columns = {
  ...{ macaddr: 'mac', serial: 'serial', uuid: 'uuid', vendor: 'maker', assettag: 'asset' },
  'BMC.macaddress': 'bmc_mac'
}
/** Machines that a scan of BMCs found may have no MAC yet. */
const idOf = ({ mac, bmc, count: times }) => (times > 0 ? mac : bmc)
const mostNames = 5000

/** Returns the names of `node[001-050,060]`. Throws Error for more than one pair of brackets. */
function namesOf(text) {
  const [, before, list, after] = /^([\w.-]*)(?:\[([\d,-]+)\])?([\w.-]*)$/.exec(text.trim()) ?? []
  if (before === undefined) throw new Error('Type names such as node[001-050].')
  if (list === undefined) return [before + after].filter(Boolean)
  return list.split(',').flatMap(part => {
    const [from, to = from] = part.split('-')
    const length = Math.min(mostNames, Math.max(0, to - from + 1))
    return Array.from(
      { length },
      (_, i) => before + String(Number(from) + i).padStart(from.length, '0') + after
    )
  })
}

const cellOf = text => (/[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

/** The fields that say which machine a node is, compared without case and blanks. */
const ofMachine = /^(?:serial|uuid|.*\.macaddress)$/
const bare = value =>
  String(value ?? '')
    .replace(/\s/g, '')
    .toLowerCase()

/** Throws Error for a node that has a machine, or another serial number, UUID or MAC; as svcctl does. */
async function refuseTaken({ changes }, nodes, machines) {
  const there = changes.filter(({ type, action }) => type === 'node' && action === 'update')
  for (const { name, fields } of there) {
    const { macaddr } = (await read(`/config/node/${encodeURIComponent(name)}`)).config.node[name]
    if (macaddr !== null && macaddr !== machines[nodes.indexOf(name)]?.mac)
      throw new Error(`Node ${name} has a machine already, ${macaddr}.`)
    for (const { field, before, after } of fields)
      if (ofMachine.test(field) && bare(before) !== '' && bare(before) !== bare(after))
        throw new Error(`Node ${name} has ${field} ${before}, and the machine ${after}: clear it first.`)
  }
}

/** Shows the machines that belong to no node, and makes nodes of them. */
export function unknownView(place, { isAdmin, events }) {
  /** The ids of those that are ticked. */
  const taken = new Set()
  let machines = []
  const list = loaded(
    place,
    'Unknown machines',
    async () => Object.values((await read('/monitor/unknown')).monitor.unknown),
    (body, found) => {
      machines = found
      for (const id of taken) if (!machines.some(machine => idOf(machine) === id)) taken.delete(id)
      if (found.length > 0) refill(body, rows())
      else fill(body, h('p', { class: 'empty' }, 'None has asked for a boot script.'))
      form.hidden = found.length === 0
    }
  )
  const heads = ['Machine', 'Maker', 'Model', 'Serial', 'Address', 'Port', 'Asked', 'Last', 'Beware']
  const rows = () => table('Machines that belong to no node', heads, machines.map(rowOf))
  function rowOf(machine) {
    const { maker, product, serial, address, port, bmc, last, conflict } = machine
    const id = idOf(machine)
    const onclick = ({ target }) => taken[target.checked ? 'add' : 'delete'](id)
    const props = { type: 'checkbox', class: 'pick', 'data-name': id, 'aria-label': `Take ${id}` }
    const box = isAdmin() && h('input', { ...props, checked: taken.has(id), onclick })
    const texts = [maker, product, serial, address ?? `BMC ${bmc}`, port && `${machine.switch} ${port}`]
    const heard = [`${number(machine.count)} ×`, last && ago(Date.parse(last))]
    return [
      [box, id],
      ...texts.map(text => text || '–'),
      ...heard,
      conflict && h('span', { class: 'bad' }, conflict)
    ]
  }

  const field = (name, input) => h('label', {}, h('span', {}, name), input)
  const names = h('input', { placeholder: 'node[001-050]', required: true, autocomplete: 'off' })
  const group = h('input', { autocomplete: 'off' })
  const order = h(
    'select',
    {},
    Object.keys(orders).map(value => h('option', { value }, value))
  )
  const problem = h('p', { class: 'problem', role: 'alert' })
  const all = () => {
    for (const machine of machines) if (!machine.conflict) taken.add(idOf(machine))
    refill(list.body, rows())
  }
  const form = h(
    'form',
    { hidden: true, onsubmit: event => adopt(event).catch(({ message }) => fill(problem, message)) },
    h(
      'div',
      { class: 'tools' },
      button('Take all without a warning', all),
      field('Names', names),
      field('Group', group),
      field('In the order of', order),
      h('button', { class: 'main' }, 'Make nodes of them')
    ),
    problem
  )
  if (isAdmin()) list.body.before(form)

  async function adopt(event) {
    event.preventDefault()
    fill(problem)
    const keys = orders[order.value]
    const inOrder = (a, b) => {
      const key = keys.find(one => a[one] !== b[one])
      return key ? compare(a[key] ?? '', b[key] ?? '') : 0
    }
    const chosen = machines.filter(machine => taken.has(idOf(machine))).sort(inOrder)
    const lacks = chosen.find(machine => !machine[keys[0]])
    if (lacks) throw new Error(`Machine ${idOf(lacks)} has no ${order.value}: choose another order.`)
    const nodes = namesOf(names.value)
    if (nodes.length !== chosen.length || chosen.length === 0)
      throw new Error(
        `${count(chosen.length, 'machine')} ticked, and ${count(nodes.length, 'name')}: give as many.`
      )
    const head = ['name', ...(group.value ? ['group'] : []), ...Object.keys(columns)]
    const line = (machine, i) => [
      nodes[i],
      ...(group.value ? [group.value] : []),
      ...Object.values(columns).map(key => machine[key] ?? '')
    ]
    const csv = [head, ...chosen.map(line)].map(cells => `${cells.map(cellOf).join(',')}\n`).join('')
    const answer = await post('/config/node?format=csv&dryrun=yes', csv)
    await refuseTaken(answer, nodes, chosen)
    const shown = chosen.map((one, i) => [
      nodes[i],
      idOf(one),
      one.serial ?? '–',
      one.maker ?? '–',
      one.product ?? '–'
    ])
    const question = {
      title: `Make ${count(nodes.length, 'node')}?`,
      text: [answer.message, table('New nodes', ['Node', 'Machine', 'Serial', 'Maker', 'Model'], shown)],
      yes: 'Make them',
      does: () => post(`/config/node?format=csv&expect=${answer.mark}`, csv)
    }
    if (!(await confirm(question))) return
    taken.clear()
    notice(`${count(nodes.length, 'node')} made.`)
    list.again()
  }

  const later = soon(15_000, list.again)
  return list.until([
    // A stranger can cause an event each second.
    events.on('unknown', soon(5_000, list.again)),
    ...['node', 'reset'].map(kind => events.on(kind, later))
  ])
}

const isSize = /^(size|total)$/
const show = (key, value) => (isSize.test(key) && Number.isFinite(value) ? size(value) : String(value))

/** Describes a part of a machine in one line; `true` is the name of its field. */
const described = part =>
  Object.entries(part)
    .filter(([, value]) => value !== false && value !== '' && !Array.isArray(value))
    .map(([key, value]) => (value === true ? key : show(key, value)))
    .join(' · ')

/** Shows what a node is made of, as it reported it. */
export async function hardwareOf(name) {
  // The list: a node without an inventory is no error in it.
  const { inventory } = (await read(`/monitor/inventory?nodes=${encodeURIComponent(name)}`)).monitor
  if (!inventory?.[name]) return h('p', { class: 'empty' }, `${name} has reported no inventory yet.`)
  const { since, source, ...parts } = inventory[name]
  const lines = value => (Array.isArray(value) ? value : [value]).slice(0, 200)
  const items = value => lines(value).map(one => h('li', {}, typeof one === 'object' ? described(one) : one))
  const slots = parts.memory?.slots ?? []
  return [
    since && h('p', { class: 'faint' }, 'Since ', ago(Date.parse(since)), source && `, told at ${source}`),
    terms(
      Object.entries({ ...parts, ...(slots.length > 0 && { slots }) }).map(([key, value]) => [
        key,
        h('ul', { class: 'plain' }, items(value))
      ])
    )
  ]
}
