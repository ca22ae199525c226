import { comeFromProvider, follow, forget, isLoggedIn, read, whenVoid } from './api.js'
import { cluster, load, take } from './cluster.js'
import { notice } from './dialog.js'
import { button, fill, h, soon } from './dom.js'
import { editView } from './edit.js'
import { auditView, imagesView, jobsView, networksView, servicesView } from './lists.js'
import { unknownView } from './machines.js'
import { nodeView } from './node.js'
import { clusterView } from './nodes.js'
import { strangerView } from './stranger.js'

const [main, nav, session, where] = ['main', 'nav', 'session', 'where'].map(id => document.getElementById(id))

const views = [
  ['cluster', 'Cluster', clusterView],
  ['unknown', 'Unknown', unknownView],
  ['jobs', 'Jobs', jobsView],
  ['images', 'Images', imagesView],
  ['networks', 'Networks', networksView],
  ['services', 'Services', servicesView],
  ['audit', 'Audit log', auditView]
]

let role = 'viewer'
let stop = new AbortController()
let endView = () => {}
/** Whether the stream is connected. */
let isLive
let unwell = new Set()

/** Listeners for events by kind. */
const listeners = new Map()
const events = {
  on(kind, listener) {
    const those = listeners.get(kind) ?? new Set()
    listeners.set(kind, those.add(listener))
    return () => those.delete(listener)
  }
}
/** Operators act on nodes: power, a new installation, consoles. */
const context = { events, isAdmin: () => role === 'admin', mayAct: () => role !== 'viewer' }

/** Shows the view named in the address. */
function show() {
  endView()
  endView = () => {}
  scrollTo(0, 0)
  if (!isLoggedIn()) return
  const [name, ...rest] = (location.hash.replace(/^#\/?|\?.*$/g, '') || 'cluster').split('/')
  for (const link of nav.children) {
    if (link.dataset.view === (['node', 'edit'].includes(name) ? 'cluster' : name))
      link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  if (name === 'node') {
    const node = nameIn(rest.join('/'))
    document.title = `${node} · svcd`
    endView = nodeView(main, node, context)
    return
  }
  if (name === 'edit') {
    document.title = 'Edit · svcd'
    endView = editView(main, rest.map(nameIn), context)
    return
  }
  const [, title, view] = views.find(([key]) => key === name) ?? views[0]
  document.title = `${title} · svcd`
  endView = view(main, context)
}

function nameIn(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const reload = soon(500 + Math.random() * 1500, () => load().catch(() => {}))

/** Handles events of the stream. */
function told(came) {
  const rows = []
  for (const { kind, data } of came) {
    if (kind === 'node') rows.push(data)
    else if (kind === 'begin') {
      if (role !== data.role) {
        role = data.role
        drawSession()
        show()
      }
    } else if (kind === 'reset') load().catch(() => reload())
    else if (kind === 'change' && ['group', 'osimage', 'osimagetag', 'pack', 'cluster'].includes(data.type))
      reload()
    else if (kind === 'service') serviceChanged(data)
    else if (kind === 'takeover')
      notice(
        data.to === null
          ? `Node ${data.node} was taken over by machine ${data.mac}, asked for from ${data.from}.`
          : `Node ${data.node} lost its machine ${data.mac} to node ${data.to}, asked for from ${data.from}.`,
        { isBad: true, link: { href: `#/node/${encodeURIComponent(data.node)}`, text: 'Show it' } }
      )
  }
  if (rows.length > 0) take(rows)
  for (const { kind, data } of came) for (const listener of listeners.get(kind) ?? []) listener(data)
}

function serviceChanged({ name, status }) {
  if (status === 'failed') unwell.add(name)
  else unwell.delete(name)
  drawSession()
}

function drawSession() {
  if (!isLoggedIn()) return fill(session)
  const state = isLive === undefined ? 'connecting' : isLive ? 'live' : 'no connection'
  fill(
    session,
    unwell.size > 0 && h('a', { href: '#/services', class: 'alarm' }, `${[...unwell].join(', ')}: not well`),
    h('span', { class: `live ${isLive ? 'on' : 'off'}`, role: 'status' }, state),
    h('span', { class: 'role' }, role),
    button('Log out', () => {
      forget()
      leave()
    })
  )
}

/** After a log-in, or with the token of this tab. */
async function enter() {
  nav.hidden = false
  isLive = undefined
  stop = new AbortController()
  const { signal } = stop
  const loading = load()
  drawSession()
  fill(main, h('p', { class: 'faint' }, 'Loading …'))
  try {
    await loading
  } catch (error) {
    if (isLoggedIn()) {
      fill(main, h('p', { class: 'problem', role: 'alert' }, error.message), button('Try again', enter))
      nav.hidden = true
    }
    return
  }
  show()
  const state = now => {
    if (isLive !== now) {
      isLive = now
      drawSession()
    }
  }
  follow(cluster.mark, { told, state, signal })
  read('/config/cluster').then(
    ({ config }) => fill(where, config.cluster.name ?? ''),
    () => {}
  )
  read('/monitor/status').catch(error => {
    for (const [name, { status }] of Object.entries(error.services ?? {}))
      if (status === 'failed') unwell.add(name)
    drawSession()
  })
}

function leave(why) {
  stop.abort()
  endView()
  endView = () => {}
  role = 'viewer'
  unwell = new Set()
  nav.hidden = true
  document.title = 'svcd'
  fill(where)
  drawSession()
  endView = strangerView(
    main,
    () => {
      endView()
      enter()
    },
    why
  )
}

fill(
  nav,
  views.map(([key, title]) => h('a', { href: `#/${key}`, 'data-view': key }, title))
)
addEventListener('hashchange', () => {
  if (!isLoggedIn()) return
  show()
  main.focus({ preventScroll: true })
})
whenVoid(() => leave('The session is over. Log in again.'))
comeFromProvider().then(
  () => (isLoggedIn() ? enter() : leave()),
  error => leave(error.message)
)
