import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Mutex, Semaphore, shared, singleFlight } from '../lib/concurrency.js'
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
  const { get, forget } = shared(
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
  forget()
  t.equal(await get(), 3)
  nowMs -= 5000
  t.equal(await get(), 4, 'a clock that was set back')
  forget()
  const begun = get()
  await new Promise(setImmediate)
  forget()
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
  for (let n = 0; n < 400; n++) semaphore.refuseOne(1, new Error('full'))
  await Promise.all([right, ...crowd])
  t.ok(order.indexOf('b/1') <= 2, 'its turn comes soon')
  t.equal(order.length, 101)
  t.equal(semaphore.waiting(1), 0)
})
