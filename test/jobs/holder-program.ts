import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLog } from '../../lib/base/log.js'
import { Jobs } from '../../lib/jobs/jobs.js'
import { MemoryRecords } from '../support/memory-records.js'

// Prints the ids of a job that has ended, one that runs and has said something, and one that waits for it.
const [, , directory = ''] = process.argv
const jobs = await Jobs.open({
  open: new MemoryRecords().opener(directory),
  now: Date.now,
  log: createLog('error'),
  parallel: 3
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
// Lines reach the disk within a second.
while (!(await readFile(`${directory}/${running.id}.json`, 'utf8')).includes('working')) await sleep(50)
process.stdout.write(`${[ended.id, running.id, waiting.id].join('\n')}\n`)
setInterval(() => {}, 1000)
