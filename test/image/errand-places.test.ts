// How many pieces of work one controller may have another one do, and how long it waits for one that stands
// still (rules 9.15).
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { errandRoutes } from '../../lib/api/between-controllers.js'
import type { Caller } from '../../lib/auth/access.js'
import { ControllerQuestions } from '../../lib/auth/controller-proof.js'
import { HttpServer } from '../../lib/http/server.js'
import { BusyError, LostError, runThere } from '../../lib/image/errands/asking.js'
import type { Errand } from '../../lib/image/errands/errand.js'
import { Errands, type ErrandsOptions } from '../../lib/image/errands/errand.js'
import type { JobContext } from '../../lib/jobs/jobs.js'
import { createLog } from '../../lib/log.js'
import { until } from '../support/until.js'

const proofs = new ControllerQuestions(Buffer.alloc(32, 7), Date.now)
const log = createLog('error', () => {})
const none = () => undefined
const job = (): Omit<JobContext, 'id'> => ({
  signal: new AbortController().signal,
  ...{ line: none, progress: none, result: none }
})

const errand = (check = false): Errand => ({
  ...{ to: 'c2', writer: 'http://c1', revision: 5 },
  task: { kind: 'pack', osimage: 'compute', wish: {}, check }
})

/** How c1 asks a controller c2, which follows it, for work; c2 is a server of svcd's with its routes. */
async function asked(t: Test, perform: ErrandsOptions['perform'], isThere = () => true) {
  const errands = new Errands({ own: 'c2', log, revision: () => 5, writer: () => 'http://c1', perform })
  const server = new HttpServer<Caller>({
    routes: errandRoutes(errands, new ControllerQuestions(Buffer.alloc(32, 7), Date.now)),
    authorize: () => ({ kind: 'anonymous' }),
    maxBody: 4096,
    trustedProxies: [],
    // All come from one address, which is bound as that of another machine.
    ownAddresses: [],
    log
  })
  const { port } = await server.listen('127.0.0.1', 0)
  t.teardown(() => server.close(0))
  const asking = { trust: { rejectUnauthorized: true }, proofs, isThere }
  const url = `http://127.0.0.1:${port}`
  return (check = false, told = job()) => runThere(url, errand(check), asking, told)
}

t.test('all that one controller may ask for is done at once, and checks beside it', async t => {
  let begun = 0
  let end = () => {}
  const gate = new Promise<void>(resolve => {
    end = resolve
  })
  const ask = await asked(t, async ({ check }) => {
    begun++
    await gate
    return { check }
  })
  const running = Array.from({ length: 160 }, (_, i) => ask(i % 4 === 0))
  for (const one of running) one.catch(error => t.fail(error.message))
  await until(
    () => begun === 160,
    () => `${begun} were begun`
  )
  const more = Array.from({ length: 24 }, () => ask(true))
  for (const one of more) one.catch(error => t.fail(error.message))
  await until(() => begun === 184)
  const tooMany = await ask(true).catch(error => error)
  t.match(tooMany, {
    status: 503,
    message:
      /^controller c2 refuses \(503\): 64 checks for the controller that writes are under way, which is the most/
  })
  t.ok(tooMany instanceof BusyError && tooMany.afterMs >= 1000, 'it may be asked again')
  running.push(ask())
  await until(() => begun === 185)
  end()
  t.strictSame(
    await Promise.all([...running, ...more].map(one => one.then(() => 'done'))).then(all => all.length),
    185
  )
})

t.test('one that stands still is left once it is not listed any more', async t => {
  const head = 'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n'
  for (const [when, says] of [
    ['before it answers', ''],
    ['while it works', head]
  ] as const) {
    const sockets = new Set<Socket>()
    const server = createServer(socket => {
      sockets.add(socket.on('error', () => undefined))
      socket.once('data', () => says !== '' && socket.write(says))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
    let isThere = true
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const running = runThere(
      url,
      errand(),
      { trust: { rejectUnauthorized: true }, proofs, isThere: () => isThere },
      job()
    )
    running.catch(() => undefined)
    await until(() => sockets.size === 1)
    isThere = false
    await t.rejects(running, new LostError('it is not there any more'), when)
  }
})

t.test('one that is cut off from the list and works on is not left', async t => {
  let isThere = true
  const ask = await asked(
    t,
    async (_task, { line }) => {
      line('begun')
      // Longer than one that says nothing is waited for.
      await sleep(5000)
      return { came: true }
    },
    () => isThere
  )
  const came = await ask(false, {
    ...job(),
    line: () => {
      isThere = false
    }
  })
  t.same(came, { came: true })
})
