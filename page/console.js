import { post, read, send } from './api.js'
import { fill, h } from './dom.js'

/** Most characters of one request that types. */
const mostTyped = 8192

/**
 * The serial console of a node: its last lines, and what it shows from now on. Returns what ends it. The
 * terminal is loaded when it is first opened.
 */
export function consoleView(place, name) {
  const path = `/control/console/${encodeURIComponent(name)}`
  const screen = h('div', { class: 'console' })
  const status = h('p', { role: 'status' }, '')
  const button = h('button', { type: 'button', onclick: toggle }, 'Open')
  let end
  fill(place, h('div', { class: 'title' }, h('h2', { id: 'console' }, 'Console'), button), status, screen)

  function toggle() {
    if (end) return end()
    const stop = new AbortController()
    end = () => stop.abort()
    button.textContent = 'Close'
    status.textContent = 'Opening …'
    attach(stop.signal)
      .then(reason => (stop.signal.aborted ? '' : reason))
      .catch(error => (stop.signal.aborted ? '' : error.message))
      .then(text => {
        stop.abort()
        end = undefined
        button.textContent = 'Open'
        status.textContent = text
      })
  }

  /** Shows the console until its end; resolves to the reason. */
  async function attach(signal) {
    const { Terminal } = await import('./xterm.mjs')
    const { lines } = (await read(`/monitor/console/${encodeURIComponent(name)}?lines=200`)).monitor.consoles[
      name
    ]
    const response = await send(path, { signal })
    const terminal = new Terminal({
      scrollback: 5000,
      screenReaderMode: true
    })
    signal.addEventListener('abort', () => terminal.dispose())
    openTerminal(terminal, fill(screen))
    // Otherwise nobody could leave the console by keyboard.
    terminal.attachCustomKeyEventHandler(event => !(event.key === 'Tab' && event.shiftKey))
    for (const { text } of lines) terminal.write(`\u001b[2m${text}\u001b[0m\r\n`)
    let session
    const type = inOrder(input => post(path, { control: { consoles: { [name]: { session, input } } } }))
    terminal.onData(text => type(text).catch(error => status.replaceChildren(error.message)))
    let reason = 'The controller has ended the stream: open it again.'
    for await (const { kind, data } of events(response)) {
      if (kind === 'session') {
        session = data
        status.textContent = `Attached. Keys go to ${name}; Shift+Tab leaves the console.`
        terminal.focus()
      } else if (kind === 'end') reason = data
      // The next piece is read when this one was drawn.
      else await new Promise(drawn => terminal.write(data, drawn))
    }
    return reason
  }

  return () => end?.()
}

/** Returns a function that sends texts one after the other, those that wait together. */
function inOrder(sends) {
  let waiting = ''
  let sending
  const run = async () => {
    try {
      while (waiting !== '') {
        const text = waiting.slice(0, mostTyped)
        waiting = waiting.slice(mostTyped)
        await sends(text)
      }
    } finally {
      sending = undefined
      waiting = ''
    }
  }
  return text => {
    waiting += text
    sending ??= run()
    return sending
  }
}

/** Yields the server-sent events of a response. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const parts = (rest + value).split('\n\n')
    rest = parts.pop()
    for (const part of parts) {
      const [, kind = 'text', data] = /^(?:event: (\w+)\n)?data: (.*)$/.exec(part) ?? []
      if (data !== undefined) yield { kind, data: JSON.parse(data) }
    }
  }
}

/**
 * Opens a terminal. The page's policy allows no style elements: each becomes a style sheet of the document.
 */
function openTerminal(terminal, place) {
  const { createElement } = document
  document.createElement = (name, ...options) =>
    name === 'style' ? styleSheet() : createElement.call(document, name, ...options)
  try {
    terminal.open(place)
  } finally {
    // That of its prototype remains.
    delete document.createElement
  }
}

function styleSheet() {
  const sheet = new CSSStyleSheet()
  document.adoptedStyleSheets.push(sheet)
  const element = h('span', {})
  const remove = element.remove.bind(element)
  Object.defineProperty(element, 'textContent', { set: text => sheet.replaceSync(text) })
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(other => other !== sheet)
    remove()
  }
  return element
}
