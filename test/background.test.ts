import t from 'tap'
import { Background, type BackgroundOptions, type Clock } from '../lib/base/background.js'

/** A clock that goes when the test says so. */
class TestClock implements Clock {
  ms = 0
  timers: { readonly due: number; readonly work: () => void; readonly holds: boolean }[] = []

  now(): number {
    return this.ms
  }

  after(ms: number, work: () => void, holds: boolean): () => void {
    const timer = { due: this.ms + ms, work, holds }
    this.timers.push(timer)
    return () => {
      this.timers = this.timers.filter(other => other !== timer)
    }
  }

  /** Lets that much time pass. */
  async pass(ms: number): Promise<void> {
    const end = this.ms + ms
    for (;;) {
      await turn()
      const [next] = this.timers.toSorted((a, b) => a.due - b.due)
      if (!next || next.due > end) break
      this.ms = next.due
      this.timers = this.timers.filter(timer => timer !== next)
      next.work()
    }
    this.ms = end
    await turn()
  }
}

/** Lets what is due at once happen. */
const turn = () => new Promise(resolve => setImmediate(resolve))

/**
 * Background work that notes when each run begins; a run fails while `fails` says why, and lasts while `held`
 * does.
 */
function background(options: Omit<BackgroundOptions, 'work' | 'clock'> = {}) {
  const clock = new TestClock()
  const begun: number[] = []
  const said: string[] = []
  const state = { fails: '', held: Promise.resolve(), release: () => {}, aborted: false }
  const work = new Background({
    work: async signal => {
      begun.push(clock.ms)
      await state.held
      state.aborted = signal.aborted
      if (state.fails !== '') throw new Error(state.fails)
    },
    onFailure: reason => said.push(reason),
    onRecovery: () => said.push('well'),
    ...options,
    clock
  })
  const hold = () => {
    state.held = new Promise<void>(resolve => {
      state.release = resolve
    })
  }
  return { clock, begun, said, state, hold, work }
}

t.test('it does nothing before it is woken, and runs once for all who woke it until then', async t => {
  const { clock, begun, work } = background()
  await clock.pass(1000)
  t.same(begun, [])
  work.wake(100)
  await clock.pass(50)
  work.wake(100)
  work.wake(100)
  await clock.pass(1000)
  t.same(begun, [1100], 'the first of them says when')
  work.wake(100)
  work.wake(20)
  await clock.pass(1000)
  t.same(begun, [1100, 2070], 'or who is in a hurry')
  t.same(clock.timers, [])
})

t.test('one run at a time, and another one when it was woken meanwhile', async t => {
  const { clock, begun, state, hold, work } = background()
  hold()
  work.wake()
  await clock.pass(10)
  work.wake(5)
  work.wake()
  await clock.pass(10)
  t.same(begun, [0], 'the first run is under way')
  state.release()
  await clock.pass(10)
  t.same(begun, [0, 20])
  await clock.pass(1000)
  t.same(begun, [0, 20])
})

t.test('run: a run that began after the call, and its failure', async t => {
  const { clock, begun, state, hold, work } = background({ retryMs: { first: 10, longest: 10 } })
  hold()
  const first = work.run()
  await turn()
  const second = [work.run(), work.run()]
  state.release()
  await Promise.all([first, ...second])
  t.equal(begun.length, 2)
  state.fails = 'no space'
  await t.rejects(work.run(), { message: 'no space' })
  state.fails = ''
  work.wake(5)
  await work.run()
  await clock.pass(1000)
  t.equal(begun.length, 4, 'what was due is done by it')
})

t.test(
  'a reason that varies by the endpoint alone, or comes by turns with another one, is told once',
  async t => {
    const { clock, begun, said, state, work } = background({ retryMs: { first: 10, longest: 10 } })
    const reasons = [
      'etcd at https://10.141.0.1:2379: ECONNREFUSED',
      'etcd at https://10.141.0.2:2379: it does not answer',
      'etcd at https://10.141.0.3:2379: ECONNREFUSED',
      'etcd at https://[fd00::2]:2379: it does not answer',
      'connect ECONNREFUSED 10.141.0.1:2379',
      'connect ECONNREFUSED 10.141.0.2:2379'
    ]
    for (const reason of [...reasons, ...reasons]) {
      state.fails = reason
      work.wake()
      await clock.pass(1)
      t.equal(work.problem, reason)
    }
    t.ok(begun.length >= 12)
    t.same(said, [reasons[0], reasons[1], reasons[4]])
    for (let i = 0; i < 100; i++) {
      state.fails = `reason ${i}`
      work.wake()
      await clock.pass(1)
    }
    t.equal(said.length, 20, 'and they have a bound')
    state.fails = ''
    work.wake()
    await clock.pass(1)
    state.fails = reasons[0] as string
    work.wake()
    await clock.pass(1)
    t.same(said.slice(-2), ['well', reasons[0]], 'after it was well it is news')
  }
)

t.test('failures: ever longer pauses, told once, and told when it is well again', async t => {
  const { clock, begun, said, state, work } = background({ retryMs: { first: 10, longest: 50 } })
  state.fails = 'no space'
  work.wake()
  await clock.pass(150)
  t.same(begun, [0, 10, 30, 70, 120])
  t.same(said, ['no space'])
  t.equal(work.problem, 'no space')
  state.fails = 'read only'
  await clock.pass(50)
  t.same(said, ['no space', 'read only'], 'another reason is news')
  work.wake()
  await clock.pass(0)
  t.equal(begun.at(-1), 200, 'who wakes it does not wait for the end of the pause')
  state.fails = ''
  await clock.pass(1000)
  t.same(said, ['no space', 'read only', 'well'])
  t.equal(work.problem, '')
  t.same(clock.timers, [])
  work.wake()
  await clock.pass(0)
  t.same(said, ['no space', 'read only', 'well'], 'that it goes on well is no news')
  state.fails = 'no space'
  begun.length = 0
  work.wake()
  await clock.pass(15)
  t.same(begun, [1200, 1210], 'the pauses begin anew')
})

t.test('repeated: after a pause, also after a failure', async t => {
  const { clock, begun, state, work } = background({ everyMs: 100 })
  work.wake(50)
  await clock.pass(300)
  t.same(begun, [50, 150, 250])
  state.fails = 'no space'
  await clock.pass(300)
  t.same(begun, [50, 150, 250, 350, 450, 550])
  let next: number | undefined = 30
  const asked = background({ everyMs: () => next })
  asked.work.wake()
  await asked.clock.pass(50)
  next = undefined
  await asked.clock.pass(1000)
  t.same(asked.begun, [0, 30, 60], 'a function says how long, and whether')
})

t.test('the process waits for what was asked for, not for the next repetition', async t => {
  const { clock, work } = background({ everyMs: 100 })
  work.wake()
  await clock.pass(10)
  t.match(clock.timers, [{ due: 100, holds: false }])
  work.wake(500)
  t.match(clock.timers, [{ due: 100, holds: true }])
  await clock.pass(90)
  const busy = background({ everyMs: 100 })
  busy.hold()
  busy.work.wake()
  await busy.clock.pass(0)
  busy.work.wake(500)
  busy.state.release()
  await busy.clock.pass(0)
  t.match(busy.clock.timers, [{ due: 100, holds: true }], 'the repetition comes first, and does for both')
})

t.test('settled: nothing that was asked for is left, whether it went well or not', async t => {
  const { clock, begun, state, work } = background({ retryMs: { first: 10, longest: 50 }, everyMs: 100 })
  await work.settled()
  state.fails = 'no space'
  work.wake(20)
  let settled = false
  const waiting = work.settled().then(() => {
    settled = true
  })
  await clock.pass(10)
  t.equal(settled, false)
  await clock.pass(10)
  await waiting
  t.same(begun, [20])
})

t.test('close: the run under way is aborted and waited for, and none comes after it', async t => {
  const { clock, begun, said, state, hold, work } = background({ retryMs: { first: 10, longest: 50 } })
  hold()
  work.wake()
  await clock.pass(0)
  work.wake()
  const settled = work.settled()
  state.fails = 'ended early'
  let closed = false
  const closing = work.close().then(() => {
    closed = true
  })
  await clock.pass(10)
  t.equal(closed, false)
  state.release()
  await closing
  await settled
  t.equal(state.aborted, true)
  work.wake()
  work.wake(5)
  t.same(clock.timers, [])
  await work.run()
  await work.close()
  await clock.pass(1000)
  t.same(begun, [0])
  t.same(said, [], 'what ends because of the close is no failure')
  t.same(clock.timers, [])
})
