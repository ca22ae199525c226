// Jobs of several controllers on keys in memory, in the place of etcd.
import type { Test } from 'tap'
import type { JsonObject } from '../../lib/base/json.js'
import { createLog } from '../../lib/base/log.js'
import { Jobs } from '../../lib/jobs/jobs.js'
import { keysBelow } from '../../lib/store/etcd/keys.js'
import type { Outcome } from '../../lib/store/etcd/kv.js'
import { EtcdRecords, type RecordsMedium } from '../../lib/store/etcd/records.js'

const text = (base64: unknown) => Buffer.from(String(base64), 'base64').toString()

/** The key of the head; those of records are below it. */
export const HEAD = '/r/records/jobs'

interface SharingController {
  readonly jobs: Jobs
  readonly log: readonly string[]
}

/** Keys that controllers share; one of them writes. */
export class SharedKeys {
  readonly keys = new Map<string, string>()
  /** Whose right to write it is. */
  writer = 'c1'
  /** Whether transactions are answered. */
  answers = true
  /** Texts of records that were written, in order. */
  readonly written: string[] = []
  readonly #records = new Map<string, EtcdRecords>()
  readonly #jobs = new Map<string, Jobs>()
  /** Those who know that another one writes. */
  readonly #following = new Set<string>()

  constructor(private readonly test: Test) {}

  /** Starts a controller: it follows unless it is the one that writes. */
  async start(name: string, now = Date.now): Promise<SharingController> {
    const log: string[] = []
    if (name !== this.writer) this.#following.add(name)
    const records = new EtcdRecords({
      keys: keysBelow('/r/'),
      keeper: this.#keeper(name),
      log: (level, message) => log.push(`${level} ${message}`)
    })
    for (const _ of records.loading(this.#stored()));
    this.#records.set(name, records)
    const jobs = await Jobs.open({
      ...{ controller: name, now, parallel: 2 },
      log: createLog('info', line => log.push(line)),
      open: memory => records.open('jobs', memory)
    })
    this.test.teardown(() => jobs.close(0))
    this.#jobs.set(name, jobs)
    if (!this.#following.has(name)) jobs.becameLeader()
    return { jobs, log }
  }

  /**
   * As etcd does when a controller dies or stands still: the other one writes, and the first one does not
   * know.
   */
  takeover(name: string): void {
    this.writer = name
    this.#following.delete(name)
    this.#records.get(name)?.becameLeader()
    this.#jobs.get(name)?.becameLeader()
  }

  /** A controller notices that another one writes, and then reads all anew. */
  notice(name: string): void {
    this.#following.add(name)
    this.#jobs.get(name)?.steppedDown()
  }

  reload(name: string): void {
    for (const _ of this.#records.get(name)?.loading(this.#stored()) ?? []);
  }

  /** The record of a request. */
  record(id: string) {
    return JSON.parse(this.keys.get(`${HEAD}/${id}`) ?? 'null')
  }

  #stored() {
    const texts = new Map<string, string>()
    for (const [key, value] of this.keys)
      if (key.startsWith(`${HEAD}/`)) texts.set(key.slice(HEAD.length + 1), value)
    return new Map([['jobs', { head: this.keys.get(HEAD), texts }]])
  }

  #keeper(name: string): RecordsMedium {
    const place = this
    return {
      get isReadOnly() {
        return place.#following.has(name)
      },
      get fencingToken() {
        if (place.#following.has(name)) throw new Error('another controller writes')
        return name
      },
      write: async (revision, conditions, operations) => {
        if (!this.answers) throw new Error('no answer')
        return this.#carryOut(revision, conditions, operations)
      },
      leadershipLost: () => {
        throw new Error('the right to write was lost')
      }
    }
  }

  #carryOut(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[]
  ): Omit<Outcome, 'revision'> {
    const holds = conditions.every(({ key, target, value }) =>
      target === 'VALUE' ? this.keys.get(text(key)) === text(value) : !this.keys.has(text(key))
    )
    if (revision !== this.writer || !holds)
      return { succeeded: false, found: conditions.map(({ key }) => this.#pair(text(key))) }
    const found: Outcome['found'][number][] = []
    for (const { request_put, request_delete_range, request_range } of operations as Record<
      string,
      JsonObject
    >[]) {
      const key = text((request_put ?? request_delete_range ?? request_range)?.key)
      if (request_range) found.push(this.#pair(key))
      else this.#set(key, request_put && text(request_put.value))
    }
    return { succeeded: true, found }
  }

  #set(key: string, value: string | undefined): void {
    if (value === undefined) this.keys.delete(key)
    else this.keys.set(key, value)
    if (value !== undefined && key !== HEAD) this.written.push(value)
    const bytes = value === undefined ? undefined : Buffer.from(value)
    for (const name of this.#following) this.#records.get(name)?.applyRemote(key, bytes)
  }

  #pair(key: string) {
    const value = this.keys.get(key)
    if (value === undefined) return undefined
    return { key, value: Buffer.from(value), created: '1', modified: '1', lease: '0' }
  }
}
