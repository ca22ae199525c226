/**
 * Makes an element. Texts of nodes and users are inserted as text, never as HTML. Properties that begin with
 * `on` become listeners; `class`, `aria-…`, `data-…` and `role` become attributes; all others become
 * properties.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (/^(class|role|for|scope|colspan|aria-|data-|list$)/.test(name)) element.setAttribute(name, value)
    else element[name] = value
  }
  add(element, children)
  return element
}

/** Makes the colour of a condition; a word beside it says the same. */
export const swatch = key => h('span', { class: `swatch ${key}`, 'aria-hidden': 'true' })

/** Makes a button. */
export const button = (text, onclick, props = {}) => h('button', { type: 'button', ...props, onclick }, text)

function add(element, children) {
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue
    element.append(child instanceof Node ? child : plain(String(child)))
  }
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren()
  add(element, children)
  return element
}

/** Replaces the children of an element; the focus stays on the one with the same `data-name`. */
export function refill(element, ...children) {
  const { activeElement: at } = document
  const name = element.contains(at) && at.dataset.name
  fill(element, children)
  if (name) element.querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus()
}

/** Removes invisible and direction-changing characters: the text may come from strangers. */
export const plain = text =>
  text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
  )

/** Formats a duration: 80 ms, 45 s, 3 min 5 s, 2 h 10 min, 5 d. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`
  const seconds = ms / 1000
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  if (seconds < 60) return `${Math.floor(seconds)} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`
}

// UTC, as in the log, in svcctl and in messages of the controller: two zones on one page would mislead.
const zone = { timeZone: 'UTC', timeZoneName: 'short' }
const time = { hour: '2-digit', minute: '2-digit', second: '2-digit' }
const clock = new Intl.DateTimeFormat('en-GB', { ...time, ...zone })
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', ...time, ...zone })
const here = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long' })

/**
 * Shows a time in UTC: today without the date, else with it. The title has all of it, and the reader's local
 * time.
 */
export function moment(at) {
  const date = new Date(at)
  const iso = date.toISOString()
  const isToday = iso.slice(0, 10) === new Date().toISOString().slice(0, 10)
  return h(
    'time',
    { dateTime: iso, title: `${iso}, here ${here.format(date)}` },
    (isToday ? clock : day).format(date)
  )
}

/** A cell of a table, with its heading for screens too narrow for columns. */
export const cell = (head, ...content) => h('td', { 'data-head': head }, h('div', {}, ...content))

/** Makes a list of terms and what they are, `[term, content]`. */
export const terms = rows =>
  h(
    'dl',
    {},
    rows.map(([term, content]) => h('div', {}, h('dt', {}, term), h('dd', {}, content)))
  )

/**
 * Makes a table; on screens too narrow for columns each row is a card. Heads and cells are content, or made
 * cells.
 */
export function table(caption, heads, rows) {
  const isCell = one => one instanceof HTMLTableCellElement
  const names = heads.map(one => one.textContent ?? one)
  const head = heads.map(one => (isCell(one) ? one : h('th', { scope: 'col' }, one)))
  const made = (content, i) => (isCell(content) ? content : cell(names[i], content))
  const lines = rows.map(cells => h('tr', {}, cells.map(made)))
  const title = h('caption', { class: 'unseen' }, caption)
  const parts = [title, h('thead', {}, h('tr', {}, head)), h('tbody', {}, lines)]
  const props = { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption }
  return h('div', props, h('table', {}, parts))
}

/** Shows how long ago something was, and keeps that up to date. */
export const ago = at =>
  h('span', { class: 'ago', 'data-at': String(at), title: new Date(at).toISOString() }, since(at))
const since = at =>
  `${duration(Math.max(0, Date.now() - at))
    .replace(/\.\d s$/, ' s')
    .replace(/^\d+ ms$/, '0 s')} ago`

setInterval(() => {
  if (document.hidden) return
  for (const element of document.querySelectorAll('[data-at]')) {
    const text = since(Number(element.dataset.at))
    if (element.textContent !== text) element.textContent = text
  }
}, 1000)

const units = ['B', 'kB', 'MB', 'GB', 'TB']

/** Formats bytes: 1.2 GB */
export function size(bytes) {
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(bytes, 1)) / 3))
  const value = bytes / 1000 ** power
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${units[power]}`
}

export const number = new Intl.NumberFormat('en-GB').format

/** Formats a count: `3 nodes`, `1 node` */
export const count = (n, what) => `${number(n)} ${what}${n === 1 ? '' : 's'}`

/** Lists the first names. */
export const named = names =>
  `${names.slice(0, 20).join(', ')}${names.length > 20 ? ` and ${number(names.length - 20)} more` : ''}`

/** Joins the reasons of nodes, `[name, reason]`: each reason once, behind the names that have it. */
export function alike(reasons) {
  const found = new Map()
  for (const [name, reason] of reasons) {
    const text = reason
      .replaceAll(`node ${name}`, name)
      .replaceAll(name, 'the node')
      .replace(/^[\da-f.:]+: /, '')
    found.set(text, [...(found.get(text) ?? []), name])
  }
  return [...found].map(([text, names]) => `${named(names)}: ${text}`)
}

/** Runs `work` once, `ms` after the first of many calls, and never beside itself. */
export function soon(ms, work) {
  let isDue = false
  let running
  return () => {
    if (isDue) return
    isDue = true
    setTimeout(async () => {
      await running
      isDue = false
      running = work()
    }, ms)
  }
}
