import { setTimeout as sleep } from 'node:timers/promises'
import { createLog } from '../../lib/base/log.js'
import { Jobs } from '../../lib/jobs/jobs.js'
import { FileMedium } from '../../lib/store/files/medium.js'

// Prints the ids of a job that has ended, one that runs and has said something, and one that waits for it.
const [, , directory = ''] = process.argv
const medium = new FileMedium({ directory })
await medium.lock()
await medium.start([])
const jobs = await Jobs.open({
  open: memory => medium.openRecords('jobs', memory),
  ...{ now: Date.now, log: createLog('error'), parallel: 3 }
})
const base = { kind: 'pack', object: 'OS image compute', by: 'user admin', lanes: ['lane'] }
const ended = await jobs.submit({ ...base, run: async job => job.line('well done') })
await ended.done
const running = await jobs.submit({
  ...base,
  run: async job => {
    job.line('working')
    await new Promise(() => {})
  }
})
const waiting = await jobs.submit({ ...base, run: async () => {} })
// Lines are stored within a second.
await sleep(1500)
process.stdout.write(`${[ended.id, running.id, waiting.id].join('\n')}\n`)
setInterval(() => {}, 1000)
