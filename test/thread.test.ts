import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { runInThread } from '../lib/base/thread.js'

t.test('a thread whose work failed has ended when that is reported', async t => {
  const failing = new URL(
    "data:text/javascript,import{parentPort}from'node:worker_threads';parentPort.on('message',()=>{throw Error('no')})"
  )
  const threads = () => readdirSync('/proc/self/task').length
  const run = () => t.rejects(runInThread(failing, {}, { name: 'work' }), /work failed: no/)
  await run()
  // The first run starts threads of Node that stay; its own has ended.
  await sleep(200)
  const before = threads()
  for (let i = 0; i < 10; i++) {
    await run()
    t.ok(threads() <= before, `${threads()} threads, ${before} before`)
  }
})
