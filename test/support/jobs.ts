import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { type JobContext, type JobSpec, Jobs, type SubmittedJob } from '../../lib/jobs/jobs.js'
import { MemoryRecords } from './memory-records.js'

export interface Opened {
  readonly jobs: Jobs
  readonly records: MemoryRecords
  readonly log: readonly string[]
}

export interface OpenOptions {
  /** Absent: new ones. */
  readonly records?: MemoryRecords
  readonly parallel?: number
  readonly now?: () => number
  readonly mostBytes?: number
}

/** Opens the jobs of one controller. */
export async function openJobs(t: Test, { records = new MemoryRecords(), ...options }: OpenOptions = {}) {
  const log: string[] = []
  const jobs = await Jobs.open({
    parallel: 4,
    now: Date.now,
    ...options,
    open: records.opener('jobs', (id, reason) => log.push(`${id} is no record: ${reason}`)),
    log: createLog('info', line => log.push(line))
  })
  jobs.becameLeader()
  t.teardown(() => jobs.close(0))
  return { jobs, records, log } satisfies Opened
}

/** A job that runs until the test ends it, and what happened to it. */
export class Gate {
  readonly began: Promise<JobContext>
  #begin!: (job: JobContext) => void
  #end!: (error?: unknown) => void
  readonly #ended: Promise<unknown>
  readonly name: string

  constructor(
    name: string,
    readonly lanes: readonly string[] = [],
    readonly events: string[] = []
  ) {
    this.name = name
    this.began = new Promise(resolve => {
      this.#begin = resolve
    })
    this.#ended = new Promise(resolve => {
      this.#end = resolve
    })
  }

  get spec(): JobSpec {
    return {
      kind: 'pack',
      object: `OS image ${this.name}`,
      by: 'user admin',
      lanes: this.lanes,
      run: async job => {
        this.events.push(`+${this.name}`)
        this.#begin(job)
        const error = await this.#ended
        this.events.push(`-${this.name}`)
        if (error !== undefined) throw error
      }
    }
  }

  /** Lets the job end, with an error if one is given. */
  end(error?: unknown): void {
    this.#end(error)
  }
}

/** A job of one function. */
export const spec = (
  run: (job: JobContext) => Promise<void> | void,
  lanes: readonly string[] = []
): JobSpec => ({
  kind: 'pack',
  object: 'OS image compute',
  by: 'user admin',
  lanes,
  run: async job => run(job)
})

/** How a job ended: undefined, or the error. */
export const outcome = ({ done }: SubmittedJob): Promise<unknown> =>
  done.then(
    () => undefined,
    error => error
  )

/** The stored record of a job. */
export const readRecord = (records: MemoryRecords, id: string) =>
  JSON.parse(records.texts('jobs').get(id) ?? 'null')

export const recordIds = (records: MemoryRecords) => [...records.texts('jobs').keys()].sort()

/** Lets what is due at once happen. */
export const settled = () => sleep(20)
