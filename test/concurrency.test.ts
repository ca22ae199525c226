import { getEventListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import {
  cachedFor,
  Mutex,
  runFairly,
  runSliced,
  Semaphore,
  singleFlight,
  sortInSteps,
  timeLimited
} from '../lib/base/concurrency.js'
import { until } from './support/until.js'

t.test('no more than the limit at once, every task once', async t => {
  const semaphore = new Semaphore(3)
  let running = 0
  let most = 0
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, index) =>
      semaphore.run(`party${index % 7}`, async () => {
        most = Math.max(most, ++running)
        await new Promise(setImmediate)
        running--
        return index
      })
    )
  )
  t.equal(most, 3)
  t.strictSame(
    results,
    Array.from({ length: 200 }, (_, index) => index)
  )
})

t.test('a party with many tasks does not hold up another', async t => {
  const semaphore = new Semaphore(1)
  const order: string[] = []
  const run = (party: string) => semaphore.run(party, async () => void order.push(party))
  await Promise.all(['a', 'a', 'a', 'a', 'b', 'c', 'b'].map(run))
  t.strictSame(order, ['a', 'a', 'b', 'c', 'a', 'b', 'a'])
})

t.test('a task that may wait longer comes behind all others', async t => {
  const semaphore = new Semaphore(1)
  const order: string[] = []
  const run = (party: string, later: boolean) =>
    semaphore.run(party, async () => void order.push(party), later ? 2 : 0)
  const all = [
    run('a', true),
    run('b', true),
    run('b', true),
    run('c', true),
    run('d', false),
    run('d', false)
  ]
  t.equal(semaphore.waiting(2), 3)
  t.same([semaphore.waiting(2, 'b'), semaphore.waiting(2, 'd'), semaphore.waiting(0, 'd')], [2, 0, 2])
  await Promise.all(all)
  t.strictSame(order, ['a', 'd', 'd', 'b', 'c', 'b'])
  t.equal(semaphore.waiting(2), 0)
})

t.test('a task that fails gives its place back', async t => {
  const semaphore = new Semaphore(1)
  const failing = () => semaphore.run('a', () => Promise.reject(new Error('no')))
  await Promise.all([t.rejects(failing()), t.rejects(failing()), t.rejects(failing())])
  t.equal(await semaphore.run('b', async () => 'done'), 'done')
})

t.test('single flight: each caller gets the result of work that began after the call', async t => {
  let began = 0
  const ask = singleFlight(async () => {
    const mine = ++began
    await sleep(20)
    return mine
  })
  const first = [ask(), ask()]
  await until(() => began > 0)
  const second = [ask(), ask(), ask()]
  t.same(await Promise.all(first), [1, 1])
  t.same(await Promise.all(second), [2, 2, 2])
  t.equal(await ask(), 3)
  const failing = singleFlight(() => Promise.reject(new Error('no')))
  await t.rejects(failing(), /no/)
  await t.rejects(failing(), /no/)
})

t.test('mutex: one after the other in the order of the calls, also after a failure', async t => {
  const mutex = new Mutex()
  const order: string[] = []
  const work = (name: string) => async () => {
    order.push(`${name} begins`)
    await new Promise(setImmediate)
    order.push(`${name} ends`)
    if (name === 'a') throw new Error('no')
    return name
  }
  const all = ['a', 'b', 'c'].map(name => mutex.run(work(name)))
  await t.rejects(all[0] as Promise<string>, /no/)
  t.same(await Promise.all(all.slice(1)), ['b', 'c'])
  t.strictSame(order, ['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends'])
})

t.test('a result is shared for a while, and no longer than it is true', async t => {
  let made = 0
  let nowMs = 0
  let release = () => {}
  const { get, invalidate } = cachedFor(
    1000,
    async () => {
      await new Promise<void>(resolve => {
        release = resolve
        setImmediate(resolve)
      })
      return ++made
    },
    () => nowMs
  )
  t.strictSame(await Promise.all([get(), get()]), [1, 1])
  nowMs += 999
  t.equal(await get(), 1)
  nowMs += 1
  t.equal(await get(), 2)
  invalidate()
  t.equal(await get(), 3)
  nowMs -= 5000
  t.equal(await get(), 4, 'a clock that was set back')
  invalidate()
  const begun = get()
  await new Promise(setImmediate)
  invalidate()
  release()
  t.equal(await begun, 5)
  t.equal(await get(), 6, 'what was forgotten while it was made serves nobody who asks later')
})

t.test('of many parties in one group, one has to go, and another group has its turn', async t => {
  const semaphore = new Semaphore(1)
  const order: string[] = []
  const run = (party: string) => semaphore.run(party, async () => void order.push(party), 1)
  const crowd = Array.from({ length: 500 }, (_, n) => run(`a/${n}`).catch(() => undefined))
  const right = run('b/1')
  for (let n = 0; n < 400; n++) semaphore.rejectOne(1, new Error('full'))
  await Promise.all([right, ...crowd])
  t.ok(order.indexOf('b/1') <= 2, 'its turn comes soon')
  t.equal(order.length, 101)
  t.equal(semaphore.waiting(1), 0)
})

const from = (address: string) => ({ source: { address } })

/** Steps that take longer than a slice, so that each is one. */
function* slices(name: string, count: number, told: string[]): Generator<void, string> {
  for (let i = 0; i < count; i++) {
    for (const untilMs = performance.now() + 9; performance.now() < untilMs; );
    told.push(name)
    yield
  }
  return name
}

// rules 12.10
t.test('the work of requests takes one slice of each turn, from each party in turn', async t => {
  const told: string[] = []
  let most = 0
  let busy = true
  let before = 0
  const turn = () => {
    most = Math.max(most, told.length - before)
    before = told.length
    if (busy) setImmediate(turn)
  }
  turn()
  const gone = new AbortController()
  const abandoned = runFairly(slices('gone', 2, told), { ...from('a'), signal: gone.signal })
  const all = [
    runFairly(slices('long', 4, told), from('a')),
    runFairly(slices('short', 1, told), from('a')),
    runFairly(slices('other', 2, told), from('b'))
  ]
  gone.abort(new Error('hung up'))
  await t.rejects(abandoned, /hung up/)
  t.strictSame(await Promise.all(all), ['long', 'short', 'other'])
  t.equal(most, 1)
  t.equal(told[0], 'gone', 'it began before it was gone')
  t.ok(told.indexOf('short') < told.lastIndexOf('long'), told.join(' '))
  t.ok(told.indexOf('other') < told.indexOf('short'), told.join(' '))
  busy = false
})

// rules 12.10
t.test('what has begun is bounded, of one network and in all; what waits is, too', async t => {
  let open = 0
  let most = 0
  const held = function* () {
    open++
    most = Math.max(most, open)
    for (let i = 0; i < 3; i++) yield
    open--
  }
  const ask = async (address: string) => runFairly(held(), from(address))
  const of = (count: number, address: (i: number) => string) =>
    Promise.allSettled(Array.from({ length: count }, (_, i) => ask(address(i))))
  const refused = (all: readonly PromiseSettledResult<unknown>[]) =>
    all.flatMap(one => (one.status === 'rejected' ? [one.reason] : []))
  // The addresses of a /24, and of a /64, are one party.
  for (const address of [
    (i: number) => `10.1.2.${i % 250}`,
    (i: number) => `fd00:1:2:3::${i.toString(16)}`
  ]) {
    most = 0
    const errors = refused(await of(400, address))
    t.ok(most <= 4, String(most))
    t.equal(errors.length, 400 - 132)
    t.match(errors[0], {
      status: 503,
      headers: { 'Retry-After': '5' },
      message: /requests of this network are in progress/
    })
  }
  most = 0
  const many = await of(2000, i => `10.${i % 200}.${i % 7}.1`)
  t.ok(most <= 64, String(most))
  t.ok(refused(many).length > 1000)
  t.equal(open, 0)
  t.same(refused(await of(100, i => `10.${i}.0.1`)), [], 'all places are free again')
  t.same(
    refused(await Promise.allSettled(Array.from({ length: 300 }, () => runFairly(held())))),
    [],
    'its own'
  )
})

t.test('the work of svcd itself waits for no request', async t => {
  const told: string[] = []
  const requests = Array.from({ length: 30 }, () => runFairly(slices('request', 1, told), from('a')))
  await runSliced(slices('own', 2, told))
  t.ok(told.length <= 6, told.join(' '))
  await Promise.all(requests)
  const failing = sortInSteps([...Array(600).keys()], () => {
    throw new Error('no')
  })
  await t.rejects(runFairly(failing, from('a')), /no/)
  t.equal(await runFairly(slices('after', 0, told), from('a')), 'after')
})

t.test('a time limit ends the work after a collection of garbage too', async t => {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  const { signal } = new AbortController()
  const limited = timeLimited({ signal, timeLimitMs: 200 })
  let isEnded = false
  limited.signal.addEventListener('abort', () => {
    isEnded = true
  })
  for (let i = 0; i < 3; i++) {
    await sleep(20)
    collect()
  }
  await until(() => isEnded, 'the end', 10_000)
  t.equal(limited.signal.reason.name, 'TimeoutError')
  t.equal(signal.aborted, false)
})

t.test('a time limit whose work has ended keeps nothing', async t => {
  const { signal } = new AbortController()
  const limited = timeLimited({ signal, timeLimitMs: 20 })
  t.equal(getEventListeners(signal, 'abort').length, 1)
  limited.release()
  t.equal(getEventListeners(signal, 'abort').length, 0)
  await sleep(60)
  t.equal(limited.signal.aborted, false)
})
