import { existsSync, readdirSync, rmdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { withLock } from '../../lib/disk/lock-file.js'
import { start } from '../support/child.js'
import { scratch } from '../support/scratch.js'

const program = join(import.meta.dirname, 'writer-program.js')

/** A lock in a directory of its own, and a process that holds it. */
async function held(t: Pick<Test, 'teardown'>) {
  const directory = scratch(t)
  const lock = join(directory, 'x.lock')
  const holder = start(process.execPath, [program, 'hold', lock], { input: '' })
  t.teardown(() => holder.kill())
  await holder.says('held')
  return { directory, holder, take: () => withLock({ lock, file: join(directory, 'x'), busy: 'busy' }, work) }
}
const work = async () => 'done'

t.jobs = 3

t.test('a holder that was killed: the next one goes on once its lock is stale', async t => {
  const { directory, holder, take } = await held(t)
  await holder.kill()
  t.strictSame(readdirSync(directory), ['x.lock'], 'the lock is still there')
  const before = performance.now()
  t.equal(await take(), 'done')
  t.ok(performance.now() - before < 7000)
  t.strictSame(readdirSync(directory), [], 'and goes with its next holder')
})

t.test('a holder that lives keeps its lock, however long it works; one that ends gives it back', async t => {
  const { directory, holder, take } = await held(t)
  await t.rejects(take(), { message: 'busy' })
  await holder.stop()
  t.strictSame(readdirSync(directory), [])
  t.equal(await take(), 'done')
})

t.test('a lock that another process takes for a dead one, and removes while it is made', async t => {
  const directory = scratch(t)
  const lock = join(directory, 'x.lock')
  const require = createRequire(createRequire(import.meta.url).resolve('proper-lockfile'))
  const fs: typeof import('node:fs') = require('graceful-fs')
  const { stat, utimes } = fs
  let removals = 0
  const removing = (path: unknown) => {
    if (path === lock && removals++ === 0) rmdirSync(lock)
  }
  t.teardown(() => Object.assign(fs, { stat, utimes }))
  Object.assign(fs, {
    stat(...args: Parameters<typeof stat>) {
      removing(args[0])
      stat(...args)
    },
    utimes(...args: Parameters<typeof utimes>) {
      removing(args[0])
      utimes(...args)
    }
  })
  t.equal(await withLock({ lock, file: join(directory, 'x'), busy: 'busy' }, work), 'done')
  t.ok(removals > 1, 'it was removed once')
  t.strictSame(readdirSync(directory), [])
})

t.test('two at once take turns; a lost lock and a failure do no harm', async t => {
  const directory = scratch(t)
  const lock = join(directory, 'x.lock')
  const taken = { lock, file: join(directory, 'x'), busy: 'busy' }
  let inside = 0
  const alone = () =>
    withLock(taken, async () => {
      t.equal(++inside, 1)
      await sleep(50)
      inside--
    })
  await Promise.all([alone(), alone(), alone()])
  await t.rejects(
    withLock(taken, async () => {
      throw new Error('the work failed')
    }),
    { message: 'the work failed' }
  )
  await withLock(taken, async () => {
    rmdirSync(lock)
    // Renewed after 2.5 s at the latest.
    await sleep(3000)
  })
  t.notOk(existsSync(lock))
  await t.rejects(withLock({ ...taken, lock: join(directory, 'missing', 'x.lock') }, work), {
    code: 'ENOENT',
    message: `ENOENT: no such file or directory, mkdir '${taken.file}'`
  })
})
