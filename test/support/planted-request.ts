import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encode, type JobSummary, Transcript } from '../../lib/jobs/record.js'
import type { Controller } from './controller.js'

/** A request that has ended, as its record tells. */
export const ended: JobSummary = {
  id: '0123456789abcdef'.repeat(2),
  kind: 'pack',
  object: 'OS image compute',
  by: 'user admin',
  state: 'done',
  progress: 1,
  queued: Date.now() - 3000,
  started: Date.now() - 2000,
  ended: Date.now() - 1000,
  message: 'done'
}

/** Its lines. */
export const endedLines = ['kernel copied', 'packed']

/** Its record. */
export const endedText = (): string => {
  const transcript = new Transcript({ first: endedLines, left_out: 0, last: [] })
  return encode(ended, { transcript, results: new Map([['bytes', 7]]) }, new Map())
}

/** Puts the record of `ended` where the controller finds it at its next start. */
export function plantRequest(c: Controller): void {
  const directory = join(c.directory, 'state', 'jobs')
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, `${ended.id}.json`), endedText())
}
