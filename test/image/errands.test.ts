// rules 9.15
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { Errand, Task } from '../../lib/image/errands/errand.js'
import { Errands, type ErrandsOptions, errandIn } from '../../lib/image/errands/errand.js'
import { createLog } from '../../lib/log.js'
import { until } from '../support/until.js'

const task: Task = { kind: 'pack', osimage: 'compute', wish: {}, check: false }
const errand: Errand = { to: 'c2', writer: 'http://c1', revision: 5, task }

/** A controller c2 that follows http://c1, and what it says to an errand. */
function controller(more: Partial<ErrandsOptions> = {}) {
  const state = { revision: 5, writer: 'http://c1' as string | undefined }
  const errands = new Errands({
    own: 'c2',
    log: createLog('error', () => {}),
    revision: () => state.revision,
    writer: () => state.writer,
    perform: async () => ({ came: true }),
    ...more
  })
  const ask = (asked = errand) => {
    const feed = errands.feed(asked, said => `proof of ${said}`)
    let text = ''
    const stop = feed.follow(() => {
      text += feed.next()
    })
    const said = () =>
      text
        .split('\n')
        .filter(line => line !== '')
        .map((line, i) => {
          const { said, proof } = JSON.parse(line)
          t.equal(proof, `proof of ${i} ${said}`)
          return JSON.parse(said)
        })
    const end = async () => {
      await until(() => said().some(message => 'end' in message), text)
      return said().at(-1).end
    }
    t.teardown(stop)
    return { said, end, stop }
  }
  return { state, errands, ask }
}

t.test('what is done is told while it is done, and how it ended last, each with its proof', async t => {
  const { ask } = controller({
    perform: async (_task, job) => {
      job.line('packing')
      job.progress(0.5)
      job.result('bytes', 7)
      return { came: true }
    }
  })
  const { said, end } = ask()
  t.same(await end(), { done: { came: true } })
  t.same(said(), [
    { line: 'packing' },
    { progress: 0.5 },
    { result: ['bytes', 7] },
    { end: { done: { came: true } } }
  ])
})

t.test('it waits until it knows what was known to who asked', async t => {
  const { state, ask } = controller()
  state.revision = 4
  state.writer = 'http://c0'
  const { said, end } = ask()
  await sleep(300)
  t.strictSame(said(), [])
  state.revision = 5
  await sleep(300)
  t.strictSame(said(), [], 'another one writes')
  state.writer = 'http://c1'
  t.same(await end(), { done: { came: true } })
})

t.test('who writes itself works for nobody, and an errand for another controller is refused', async t => {
  const { state, errands, ask } = controller({ perform: async () => t.fail('it was begun') as never })
  state.writer = undefined
  t.match(await ask().end(), {
    failed: { status: 503, message: /does not know http:\/\/c1 as the one that writes/ }
  })
  t.throws(() => ask({ ...errand, to: 'c3' }), { status: 503, message: /this is controller c2, and not c3/ })
  await errands.close()
  t.throws(() => ask(), { status: 503, message: /shutting down/ })
})

t.test('it is stopped when who asked is gone, another one writes, or the service ends', async t => {
  const stops: [string, (c: ReturnType<typeof controller>, stop: () => void) => unknown][] = [
    ['the controller that asked for it is gone', (_c, stop) => stop()],
    ['another controller writes now', ({ state }) => (state.writer = 'http://c3')],
    ['another controller writes now', ({ state }) => (state.writer = undefined)],
    ['the service is shutting down', ({ errands }) => errands.close()]
  ]
  for (const [why, end] of stops) {
    let reason = ''
    const c = controller({
      perform: (_task, { signal }) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => {
            reason = signal.reason.message
            reject(signal.reason)
          })
        )
    })
    const { stop } = c.ask()
    await sleep(50)
    await end(c, stop)
    await until(() => reason !== '')
    t.equal(reason, why)
  }
})

t.test('a stop gives up what does not end, and names it', { timeout: 60_000 }, async t => {
  const log: string[] = []
  const c = controller({
    perform: () => new Promise(() => undefined),
    log: createLog('warn', line => log.push(line))
  })
  c.ask()
  await sleep(50)
  await c.errands.close()
  t.match(
    log.join(''),
    /pack of OS image compute for the controller at http:\/\/c1 did not end when it was stopped/
  )
})

t.test('what is said while nobody reads is kept as a record would keep it', async t => {
  const { errands } = controller({
    perform: async (_task, { line }) => {
      for (let i = 0; i < 5000; i++) line(`${i} ${'x'.repeat(65_536)}`)
      return {}
    }
  })
  const feed = errands.feed(errand, () => 'proof')
  const isOver = new Promise<void>(resolve => {
    t.teardown(feed.follow(resolve))
  })
  await isOver
  await sleep(50)
  const said = feed.next()
  t.ok(said.length < 2 * 64 * 1024 + 10_000, `${said.length} characters wait`)
  const lines = said
    .split('\n')
    .flatMap(text => (text === '' ? [] : [JSON.parse(JSON.parse(text).said).line as string | undefined]))
    .filter(line => line !== undefined)
  t.match(lines[0], /^0 x{1998}…$/, 'a line is cut')
  t.match(lines.at(-1), /^4999 /)
  const leftOut = lines.find(line => line.startsWith('… ')) ?? ''
  t.equal(Number(/^… (\d+) lines left out …$/.exec(leftOut)?.[1]) + lines.length - 1, 5000, 'each is counted')
})

t.test('nobody is known to write for a moment: it goes on', async t => {
  let done = () => {}
  const c = controller({ perform: () => new Promise(resolve => (done = () => resolve({ came: true }))) })
  const { end } = c.ask()
  await sleep(50)
  c.state.writer = ''
  await sleep(1500)
  c.state.writer = 'http://c1'
  done()
  t.same(await end(), { done: { came: true } })
})

t.test('what is no errand of this release', async t => {
  t.same(errandIn(JSON.parse(JSON.stringify(errand))), errand)
  const refused = { status: 400, message: /this release/ }
  for (const wrong of [
    undefined,
    [],
    { ...errand, revision: '5' },
    { ...errand, to: 2 },
    { ...errand, task: { ...task, kind: 'shell' } },
    { ...errand, task: { ...task, osimage: undefined } },
    { ...errand, task: { ...task, check: 'no' } },
    { ...errand, task: { ...task, wish: { path: '/etc' } } },
    { ...errand, task: { ...task, wish: { kernelfile: 1 } } },
    { ...errand, task: { kind: 'push', osimage: 'compute', dryrun: false, check: false } },
    { ...errand, task: { kind: 'removal', osimage: 'compute', tree: '..', check: false } },
    { ...errand, task: { kind: 'removal', osimage: 'compute', tree: 'a/b', check: false } }
  ])
    t.throws(() => errandIn(wrong), refused, JSON.stringify(wrong))
})
