import { type JsonValue, objectsIn, within } from '../base/json.js'
import { isNodeSet } from '../node-set/evaluate.js'
import type { Answer } from './controller.js'
import type { Session, Verb } from './session.js'
import { clean, refused, wrongUsage } from './terminal.js'

/** Characters of one request that types. */
const MOST_TYPED = 8192
/** Lines of a log that a request gets. */
const MOST_LINES = 1000
/** conmand has no session with the BMC. */
const NO_BMC = /<ConMan> Console \[\S+\] is currently disconnected/

export const consoleVerb: Verb<''> = {
  operands: 'NODE',
  summary: 'attach to the serial console of a node, &. leaves; --log shows its last lines',
  options: ['log', 'lines', 'output'],
  async run(session, _type, [node = '']) {
    const { log, lines, output } = session.options
    if (isNodeSet(node)) throw wrongUsage(`console takes one node, ${node} is a node set`)
    if (!log && (lines !== undefined || output !== undefined)) throw wrongUsage('-n and -o belong to --log')
    await (log ? showLog(session, node, lines) : attached(session, node))
  }
}

async function showLog(session: Session, node: string, lines: string | undefined): Promise<void> {
  if (lines !== undefined && !(/^\d{1,4}$/.test(lines) && Number(lines) >= 1 && Number(lines) <= MOST_LINES))
    throw wrongUsage(`-n takes a number from 1 to ${MOST_LINES}, not ${clean(lines)}`)
  const path = `/monitor/console/${encodeURIComponent(node)}`
  const answer = await session.controller.json('GET', path, { lines })
  const all = objectsIn(within(answer, 'monitor', 'consoles', node).lines)
  if (session.format !== 'text') return session.json(all)
  if (all.length === 0) session.terminal.err(clean(`console of ${node}: nothing was logged yet`).concat('\n'))
  await session.lines(
    all.map(({ time, text }) => {
      const at = typeof time === 'string' ? `${time.slice(0, 19).replace('T', ' ')} ` : ''
      return `${session.paint('dim', clean(at))}${clean(String(text))}`
    })
  )
}

async function attached(session: Session, node: string): Promise<void> {
  const { terminal, controller } = session
  if (!terminal.shows.in) throw wrongUsage('there is no terminal to type on: use --log to see the last lines')
  const path = `/control/console/${encodeURIComponent(node)}`
  const answer = await controller.send('GET', path)
  let hasLeft = false
  let waiting: { input: string; break: boolean }[] = []
  let sending: Promise<void> | undefined
  let failure: Error | undefined
  let id = ''
  const leave = (error?: Error) => {
    hasLeft = true
    failure ??= error
    answer.response.body.destroy()
  }
  // Keys wait for the answer to those before them, so that they arrive in order.
  const send = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift())
      await controller.json('POST', path, {}, { control: { consoles: { [node]: { session: id, ...next } } } })
    sending = undefined
  }
  const type = (input: string, isBreak: boolean) => {
    const last = waiting.at(-1)
    if (last && !last.break && last.input.length + input.length <= MOST_TYPED)
      waiting = [...waiting.slice(0, -1), { input: last.input + input, break: isBreak }]
    else waiting.push({ input, break: isBreak })
    sending ??= send().catch(leave)
  }
  let restore = () => {}
  try {
    for await (const { kind, text } of eventsOf(answer)) {
      if (kind === 'session') {
        id = text
        terminal.err(clean(`attached to ${node}; &. leaves, &B sends a break, && types an &`).concat('\r\n'))
        restore = terminal.typed(escapes(type, () => leave()))
      } else if (kind === 'end') failure ??= refused(clean(text))
      else {
        await terminal.out(text)
        if (NO_BMC.test(text))
          terminal.err(clean(`does its BMC answer? svcctl node power ${node} status`).concat('\r\n'))
      }
    }
  } catch (error) {
    if (!hasLeft) throw error
  } finally {
    restore()
    terminal.err('\r\n')
  }
  await sending
  if (failure) throw failure
}

/** Yields the events of a console: pieces of text, the session, and the reason of the end. */
async function* eventsOf(answer: Answer): AsyncGenerator<{ kind: string; text: string }> {
  let rest = ''
  for await (const piece of answer.pieces()) {
    const events = (rest + piece).split('\n\n')
    rest = events.pop() ?? ''
    for (const event of events) {
      const [, kind = 'text', data] = /^(?:event: (\w+)\n)?data: (.*)$/.exec(event) ?? []
      const text: JsonValue = data === undefined ? null : JSON.parse(data)
      if (typeof text === 'string') yield { kind, text }
    }
  }
}

/** Returns what takes typed text: `&.` leaves, `&B` sends a serial break, `&&` is one `&`. */
function escapes(type: (text: string, isBreak: boolean) => void, leave: () => void) {
  let isEscape = false
  return (text: string) => {
    let plain = ''
    for (const key of text) {
      if (!isEscape && key === '&') {
        isEscape = true
        continue
      }
      if (isEscape && key === '.') {
        if (plain !== '') type(plain, false)
        return leave()
      }
      if (isEscape && key === 'B') {
        type(plain, true)
        plain = ''
      } else plain += isEscape && key !== '&' ? `&${key}` : key
      isEscape = false
    }
    if (plain !== '') type(plain, false)
  }
}
