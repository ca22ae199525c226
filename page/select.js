import { post, read } from './api.js'
import { dryRunShown } from './changes.js'
import { cluster, conditions, tally } from './cluster.js'
import { confirm, notice } from './dialog.js'
import { alike, button, count, fill, h, named, number } from './dom.js'

/** Names of the selected nodes, kept while another view is open. */
export const selected = new Set()
/** The check box of the last click, where a range begins. */
let anchor

const switches = [
  ['on', 'Switch on', 'The BMCs switch these nodes on.', false],
  ['off', 'Switch off', 'These nodes are switched off at once. What runs on them is lost.', true],
  [
    'cycle',
    'Power cycle',
    'These nodes are switched off at once, and on again. What runs on them is lost.',
    true
  ]
]

/**
 * The selection of nodes in the view of the cluster. `shown` returns the nodes that the filter shows, in
 * their order.
 */
export class Selection {
  element = h('div', { class: 'buttons', role: 'group', 'aria-label': 'Selected nodes' })
  #shown
  #boxes
  #drawn
  #mayEdit

  constructor(shown, boxes, mayEdit) {
    this.#mayEdit = mayEdit
    this.#shown = shown
    this.#boxes = boxes
  }

  /** Makes the check box of a node: with Shift, all from the last one to this one follow it. */
  box(name) {
    const onclick = ({ target, shiftKey }) => {
      const names = this.#shown().map(node => node.name)
      const ends = [names.indexOf(shiftKey ? anchor : name), names.indexOf(name)]
      const [from, to] = ends.includes(-1) ? [ends[1], ends[1]] : ends.sort((a, b) => a - b)
      for (const each of names.slice(from, to + 1)) selected[target.checked ? 'add' : 'delete'](each)
      anchor = name
      this.draw()
    }
    const props = { type: 'checkbox', class: 'pick', 'data-name': name, 'aria-label': `Select ${name}` }
    return h('input', { ...props, checked: selected.has(name), onclick })
  }

  /** Draws the buttons, and the check boxes that are on the screen. */
  draw() {
    for (const name of selected) if (!cluster.nodes.has(name)) selected.delete(name)
    for (const box of this.#boxes.querySelectorAll('.pick')) box.checked = selected.has(box.dataset.name)
    const shown = this.#shown()
    const state = `${shown.length} ${selected.size}`
    // The buttons keep their focus while nothing is new.
    if (state === this.#drawn) return
    this.#drawn = state
    const names = () => [...selected]
    const choose = nodes => () => {
      selected.clear()
      for (const { name } of nodes()) selected.add(name)
      this.draw()
      this.element.querySelector('button')?.focus()
    }
    fill(
      this.element,
      shown.length > 0 && button(`Select all ${number(shown.length)} shown`, choose(this.#shown)),
      selected.size > 0 && [
        h('span', { role: 'status' }, `${count(selected.size, 'node')} selected`),
        switches.map(of => button(of[1], () => power(names(), of))),
        button('Install again', () => install(names()), { class: 'grave' }),
        this.#mayEdit &&
          button('Edit fields', () => {
            location.hash = '#/edit/nodes'
          }),
        button(
          'Select none',
          choose(() => []),
          { class: 'quiet' }
        )
      ]
    )
  }
}

/** Names nodes, and tells what they do now. */
function about(names) {
  const numbers = tally(names.flatMap(name => cluster.nodes.get(name) ?? []))
  const told = conditions.filter(({ key }) => numbers[key] > 0)
  return [named(names), `Now: ${told.map(({ key, word }) => `${number(numbers[key])} ${word}`).join(', ')}.`]
}

const send = (names, word) =>
  post(`/control/action/power/_${word}`, { control: { power: { [word]: { hostlist: names.join(',') } } } })

/** Asks the BMCs whether the nodes are on, and shows it while the dialog is open. */
function powerNow(names) {
  const place = h('div', { role: 'status' }, h('p', { class: 'faint' }, 'Asking the BMCs …'))
  const ask = async () => {
    const { request_id: id } = await send(names, 'status')
    const found = { on: 0, off: 0, failed: [] }
    for (let state = ''; state !== 'done' && state !== 'failed'; ) {
      await new Promise(resolve => setTimeout(resolve, 500))
      if (!place.isConnected) return
      const { control, ...now } = await read(`/control/status/${id}`)
      state = now.state
      for (const key of ['on', 'off']) found[key] += Object.keys(control.power[key]).length
      found.failed.push(...Object.entries(control.failed))
      fill(
        place,
        h('p', {}, `Power now: ${number(found.on)} on, ${number(found.off)} off.`),
        alike(found.failed).map(text => h('p', { class: 'bad' }, `No answer: ${text}`))
      )
    }
  }
  ask().catch(error => fill(place, h('p', { class: 'bad' }, error.message)))
  return place
}

const begun = (what, names) =>
  notice(`${what}: ${count(names.length, 'node')}: begun.`, { link: { href: '#/jobs', text: 'Show it' } })

async function power(names, [word, title, text, isGrave]) {
  const question = `${title}: ${count(names.length, 'node')}?`
  const lines = [...about(names), text, powerNow(names)]
  const does = () => send(names, word)
  if (await confirm({ title: question, text: lines, yes: title, isGrave, does })) begun(title, names)
}

async function install(names) {
  const fromDisk = names.filter(name => cluster.nodes.get(name)?.netboot === false)
  const body = { nodes: fromDisk.join(','), fields: { netboot: true, netboot_once: true } }
  const place = h('div', { role: 'status' })
  const dry = fromDisk.length > 0 ? post('/config/node/_set?dryrun=yes', body) : Promise.resolve()
  dry.then(
    answer => fill(place, answer ? dryRunShown(answer) : 'All boot from the network already.'),
    error => fill(place, h('p', { class: 'bad' }, error.message))
  )
  const does = async () => {
    const answer = await dry
    if (answer) await post(`/config/node/_set?expect=${answer.mark}`, body)
    await send(names, 'boot')
  }
  const images = [...new Set(names.map(name => cluster.nodes.get(name)?.osimage ?? 'no image'))]
  const text = [
    ...about(names),
    `They are switched on, or off and on again, and install ${images.slice(0, 5).join(', ')} at that boot. ` +
      'What runs on them is lost, and their disks may be.',
    ...[place, powerNow(names)]
  ]
  const title = `Install ${count(names.length, 'node')} again?`
  if (await confirm({ title, text, yes: 'Install again', isGrave: true, does })) begun('Install again', names)
}
