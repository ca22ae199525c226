import { begin, endOf, post, read } from './api.js'
import { cluster, whenChanged } from './cluster.js'
import { consoleView } from './console.js'
import { confirm, notice } from './dialog.js'
import { ago, button, duration, fill, h, moment, size, soon, terms } from './dom.js'
import { hardwareOf } from './machines.js'
import { badge } from './nodes.js'

const meanings = {
  menu: 'asked for the menu',
  script: 'got the boot script',
  'no-script': 'got a script that says why it cannot boot',
  disk: 'was told to boot from its disk',
  bmc: 'asked with the MAC of its BMC',
  kernel: 'asked for the kernel',
  initramfs: 'asked for the initramfs',
  file: 'asked for a boot file',
  'no-file': 'asked for a file that is not served',
  install: 'got the install script',
  kickstart: 'got the kickstart',
  refused: 'was refused its install script',
  report: 'reported',
  image: 'asked for the image',
  torrent: 'asked for the torrent file',
  running: 'its system is up'
}
const bad = new Set(['no-script', 'no-file', 'refused', 'bmc'])

/** Shows one node: its boot, its verdict, and the possible actions. Returns a function that ends the view. */
export function nodeView(place, name, { isAdmin, mayAct, events }) {
  const path = encodeURIComponent(name)
  const title = h('h1', {}, name)
  const head = h('div', { class: 'node-head' })
  const verdict = h('section', { class: 'verdict', 'aria-labelledby': 'why', 'aria-live': 'polite' })
  const way = h('section', { 'aria-labelledby': 'way' })
  const serial = h('section', { 'aria-labelledby': 'console' })
  const facts = h('section', { 'aria-labelledby': 'facts' })
  const before = h('section', { 'aria-labelledby': 'before' })
  const hardware = h('section', { 'aria-labelledby': 'hardware' })
  const actions = h('div', { class: 'buttons', role: 'group', 'aria-label': `What to do with ${name}` })
  fill(
    place,
    h('p', { class: 'back' }, h('a', { href: '#/cluster' }, '‹ Cluster')),
    h('div', { class: 'title' }, title, head),
    actions,
    h('div', { class: 'two' }, h('div', {}, verdict, way, serial, before, hardware), facts)
  )
  let details
  let boots = []
  let isGone = false
  const wasOpen = new Set()

  function drawHead() {
    const node = cluster.nodes.get(name)
    if (!node) {
      fill(head, isGone ? 'There is no such node.' : '')
      return
    }
    const heard = Math.max(node.since ?? 0, node.stepped ?? 0)
    fill(
      head,
      badge(node.condition),
      node.state && h('span', { class: 'state' }, node.state),
      heard > 0 && ago(heard),
      node.odd && h('span', { class: 'bad' }, `Not like the others: ${node.odd}`),
      node.trust && h('span', { class: node.trust === 'good' ? 'state' : 'bad' }, `Trust: ${node.trust}`)
    )
  }

  function drawWay() {
    const last = boots.at(-1)
    const list = last ? stepsOf(last, cluster.nodes.get(name)) : []
    fill(
      way,
      h('h2', { id: 'way' }, 'This boot'),
      last
        ? [
            h(
              'p',
              { class: 'faint' },
              'Began ',
              moment(last.began),
              ` from ${last.from}`,
              last.omitted > 0 && `; ${last.omitted} steps left out`
            ),
            list
          ]
        : h('p', { class: 'empty' }, 'No boot was seen yet.')
    )
    const past = boots.slice(0, -1).reverse()
    fill(
      before,
      h('h2', { id: 'before' }, 'Boots before'),
      past.length === 0
        ? h('p', { class: 'empty' }, 'None.')
        : past.map(boot => {
            const end = boot.steps.at(-1)
            return h(
              'details',
              {
                open: wasOpen.has(boot.began),
                ontoggle: event => (event.target.open ? wasOpen.add(boot.began) : wasOpen.delete(boot.began))
              },
              h(
                'summary',
                {},
                moment(boot.began),
                end &&
                  ` · ${duration(Date.parse(end.last) - Date.parse(boot.began))} · ` +
                    `${end.step === 'report' ? end.about : (meanings[end.step] ?? end.step)}`
              ),
              stepsOf(boot)
            )
          })
    )
  }

  async function loadBoots() {
    const [seen, why] = await Promise.all([
      read(`/monitor/node/${path}/_boots`),
      read(`/monitor/node/${path}/_why`)
    ])
    boots = seen.monitor.boots[name].boots
    const { verdict: text } = why.monitor.why[name]
    fill(verdict, h('h2', { id: 'why' }, 'Verdict'), h('p', {}, text))
    drawWay()
  }

  async function loadFacts() {
    details = (await read(`/config/node/${path}`)).config.node[name]
    const rows = [
      ['Group', details.group && (isAdmin() ? editLink('group', details.group) : details.group)],
      [
        'Image',
        details.osimage &&
          `${details.osimage}${details.osimagetag === 'default' ? '' : `:${details.osimagetag}`}`
      ],
      [
        'Runs',
        details._running && [details._running.pack, h('br'), 'since ', moment(details._running.since)]
      ],
      [
        'Would get',
        details._stale
          ? `${details._stale.pack ?? 'nothing'} at its next installation`
          : details._running && 'the same'
      ],
      ['Boots from', details.netboot ? 'the network' : 'its disk'],
      ['Power by', details.setupbmc || details.bmcsetupname ? details.bmcsetupname : null],
      ['Hardware', [details.vendor, details.assettag].filter(Boolean).join(', ')],
      ['Comment', details.comment]
    ]
    fill(
      facts,
      h('h2', { id: 'facts' }, 'Settings in force'),
      terms(rows.filter(([, value]) => value)),
      h('h3', {}, 'Interfaces'),
      h(
        'ul',
        { class: 'plain' },
        details.interfaces.map(({ interface: on, ipaddress, macaddress, network }) =>
          h(
            'li',
            {},
            h('strong', {}, on),
            ` ${ipaddress ?? 'no address'}`,
            h('span', { class: 'faint' }, ` ${network ?? ''} ${macaddress ?? ''}`)
          )
        )
      )
    )
    drawActions()
  }

  async function loadHardware() {
    const title = h('h2', { id: 'hardware' }, 'Hardware')
    const refused = ({ message }) => h('p', { class: 'empty' }, message)
    fill(
      hardware,
      title,
      isAdmin() ? await hardwareOf(name).catch(refused) : refused({ message: 'An admin can see it.' })
    )
  }

  const power = ([word, text, title]) =>
    button(title, () =>
      ask({ title: `${title} ${name}?`, text, yes: title, isGrave: word !== 'on' }, () =>
        read(`/control/action/power/${path}/_${word}`)
      )
    )

  async function ask(question, does) {
    if (await confirm({ ...question, does })) notice(`${name}: ${question.yes.toLowerCase()}: done.`)
  }

  let endConsole
  function drawActions() {
    serial.hidden = !mayAct()
    if (!mayAct()) return fill(actions)
    endConsole ??= consoleView(serial, name)
    fill(
      actions,
      ...[
        ['on', 'The BMC switches the node on.', 'Switch on'],
        ['off', 'The node is switched off at once. What runs on it is lost.', 'Switch off'],
        ['cycle', 'The node is switched off at once, and on again. What runs on it is lost.', 'Power cycle'],
        ['reset', 'The node is reset at once. What runs on it is lost.', 'Reset']
      ].map(power),
      button('Install again', installAgain, { class: 'grave' }),
      isAdmin() && button('Rehearse', rehearse),
      isAdmin() && editLink('node', name, 'Edit')
    )
  }

  /** Boots in a virtual machine what the node would get next. The verdict comes minutes later, on any page. */
  async function rehearse() {
    try {
      const id = await begin(`/config/node/${path}/_rehearse`, {})
      notice(`${name}: a rehearsal in a virtual machine has begun.`, {
        link: { href: '#/jobs', text: 'Jobs' }
      })
      const { state, message } = await endOf(id)
      notice(`${name}: ${state === 'done' ? 'rehearsed: well' : message}`, { isBad: state === 'failed' })
    } catch (error) {
      if (error.status !== 401) notice(error.message, { isBad: true })
    }
  }

  function installAgain() {
    const steps = details.netboot
      ? [`${name} boots from the network already.`]
      : [`netboot of ${name} is set to true, so that it boots from the network.`]
    return ask(
      {
        title: `Install ${name} again?`,
        text: [
          ...steps,
          `Its power is cycled, and it installs ${details.osimage ?? 'its image'} at that boot. What ` +
            'runs on it is lost, and its disk may be.'
        ],
        yes: 'Install again',
        isGrave: true
      },
      async () => {
        if (!details.netboot) await post(`/config/node/${path}`, { netboot: true, netboot_once: true })
        await read(`/control/action/power/${path}/_cycle`)
      }
    )
  }

  const fail = error => {
    if (error.status === 404) {
      isGone = true
      drawHead()
    } else if (error.status !== 401) notice(error.message, { isBad: true })
  }
  const reloadBoots = soon(150, () => loadBoots().catch(fail))
  const reloadFacts = soon(300, () => loadFacts().catch(fail))
  drawHead()
  loadBoots().catch(fail)
  loadFacts().catch(fail)
  loadHardware()
  const ticking = setInterval(() => {
    const running = way.querySelector('[data-from]')
    if (running)
      running.textContent = duration(Date.now() - Number(running.dataset.from)).replace(/\.\d s$/, ' s')
  }, 1000)
  const ends = [
    whenChanged(names => {
      if (names && !names.has(name)) return
      isGone = cluster.nodes.size > 0 && !cluster.nodes.has(name)
      drawHead()
      reloadBoots()
      if (names === undefined || details?.osimage !== cluster.nodes.get(name)?.osimage) reloadFacts()
    }),
    events.on('boot', ({ node }) => node === name && reloadBoots()),
    events.on('node', ({ name: node }) => node === name && reloadFacts()),
    events.on('hardware', ({ node }) => node === name && loadHardware()),
    events.on('reset', () => {
      reloadBoots()
      reloadFacts()
    })
  ]
  return () => {
    clearInterval(ticking)
    endConsole?.()
    for (const end of ends) end()
  }
}

const editLink = (type, name, text = name) =>
  h('a', { href: `#/edit/${type}/${encodeURIComponent(name)}`, title: `Edit ${type} ${name}` }, text)

/** Lists the steps of a boot with their durations; `node`: the boot may still be running. */
function stepsOf(boot, node) {
  const { steps } = boot
  const times = steps.map(({ time }) => Date.parse(time))
  const isOpen = node && ['booting', 'installing'].includes(node.condition)
  const end = isOpen ? Date.now() : Date.parse(steps.at(-1)?.last ?? boot.began)
  const whole = Math.max(end - Date.parse(boot.began), 1)
  return h(
    'ol',
    { class: 'steps' },
    steps.map(({ step, about, count: times_, from, end: sent, bytes, of }, i) => {
      const until = times[i + 1] ?? end
      const took = Math.max(0, until - times[i])
      const isLast = i === steps.length - 1
      const isBad = bad.has(step) || (step === 'report' && /^installer\.failed/.test(about))
      const isDone = step === 'running' || (step === 'report' && /^installer\.completed/.test(about))
      const bar = h('span', { class: 'bar', 'aria-hidden': 'true' })
      bar.style.setProperty('--part', String(took / whole))
      return h(
        'li',
        { class: isBad ? 'bad' : isDone ? 'good' : isLast && isOpen ? 'now' : '' },
        h('span', { class: 'at' }, moment(times[i])),
        h(
          'span',
          { class: 'what' },
          h('strong', {}, meanings[step] ?? step),
          times_ > 1 && h('span', { class: 'faint' }, ` × ${times_}`),
          about !== '' && h('span', { class: 'about' }, about),
          of !== null &&
            of > 0 &&
            h(
              'span',
              { class: 'faint' },
              `${size(bytes)} of ${size(of)}${sent === 'cut' ? ', cut off' : ''}`
            ),
          from !== boot.from && h('span', { class: 'faint' }, ` from ${from}`)
        ),
        h(
          'span',
          { class: 'took' },
          isLast && isOpen
            ? h('span', { 'data-from': String(times[i]) }, duration(took))
            : isLast
              ? ''
              : duration(took)
        ),
        bar
      )
    })
  )
}
