import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { type JobContext, type JobSpec, Jobs, type SubmittedJob } from '../../lib/jobs/jobs.js'
import type { RecordDisk } from '../../lib/jobs/record-file.js'
import { scratch } from './scratch.js'

export interface Opened {
  readonly jobs: Jobs
  readonly directory: string
  readonly log: readonly string[]
}

export interface OpenOptions {
  /** Absent: a new one, removed at the end of the test. */
  readonly directory?: string
  readonly parallel?: number
  readonly now?: () => number
  readonly disk?: RecordDisk
  readonly mostBytes?: number
}

export async function openJobs(t: Test, options: OpenOptions = {}): Promise<Opened> {
  const directory = options.directory ?? join(scratch(t), 'jobs')
  const log: string[] = []
  const jobs = await Jobs.open({
    parallel: 4,
    now: Date.now,
    ...options,
    directory,
    log: createLog('info', line => log.push(line))
  })
  t.teardown(() => jobs.close(0))
  return { jobs, directory, log }
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

export const readRecord = (directory: string, id: string) =>
  JSON.parse(readFileSync(join(directory, `${id}.json`), 'utf8'))

export const recordFiles = (directory: string) => readdirSync(directory).sort()

/** Lets what is due at once happen. */
export const settled = () => sleep(20)
