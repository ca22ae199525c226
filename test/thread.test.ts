import t from 'tap'
import { runInThread } from '../lib/base/thread.js'
import { workersFrom } from './support/workers.js'

t.test('a thread whose work failed has ended when that is reported', async t => {
  const failing = new URL(
    "data:text/javascript,import{parentPort}from'node:worker_threads';parentPort.on('message',()=>{throw Error('no')})"
  )
  const workers = workersFrom(t)
  for (let run = 1; run <= 10; run++) {
    await t.rejects(runInThread(failing, {}, { name: 'work' }), /work failed: no/)
    t.equal(workers.started(), run)
    t.equal(workers.running(), 0)
  }
})
