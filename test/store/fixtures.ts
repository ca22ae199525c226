import type { Clock } from '../../lib/base/background.js'
import { type DiskStep, type FileLayer, type LogFile, realFiles, StepError } from '../../lib/disk/steps.js'
import { SortedNames } from '../../lib/store/order.js'
import type { Doc, Index, Kind } from '../../lib/store/types.js'
import { Store, type StoreOptions } from './file-store.js'

export interface Node {
  name: string
  mac: string | null
  tags: string[]
}

export interface Counter {
  name: string
  value: number
}

export type TestTypes = { node: Node; counter: Counter }

/** MAC → node, and which MACs were ever given twice at a time (an index must never see that). */
export class MacIndex implements Index {
  readonly owner = new Map<string, string>()
  readonly names = new SortedNames()

  update(type: string, name: string, before: Doc | undefined, after: Doc | undefined): void {
    if (type !== 'node') return
    // As naive as can be on purpose: it is right only if every step arrives, in order.
    if (before && 'mac' in before && before.mac) this.owner.delete(String(before.mac))
    if (after && 'mac' in after && after.mac) this.owner.set(String(after.mac), name)
    if (before) this.names.remove(name)
    if (after) this.names.add(name)
  }
}

function kind<D extends Doc & { name: string }>(check: (doc: D) => boolean): Kind<D> {
  return {
    decode(name, json) {
      const doc = json as D
      if (doc.name !== name)
        throw new Error(`name is ${JSON.stringify(doc.name)}, not ${JSON.stringify(name)}`)
      if (!check(doc)) throw new Error('a field is of the wrong type')
      return doc
    },
    encode: doc => `${JSON.stringify(doc, null, 2)}\n`
  }
}

export const kinds: StoreOptions<TestTypes, MacIndex>['kinds'] = {
  node: kind<Node>(doc => Array.isArray(doc.tags)),
  counter: kind<Counter>(doc => typeof doc.value === 'number')
}

export function optionsFor(
  directory: string,
  more: Partial<StoreOptions<TestTypes, MacIndex>> = {}
): StoreOptions<TestTypes, MacIndex> {
  return { directory, kinds, createIndex: () => new MacIndex(), ...more }
}

export function openStore(
  directory: string,
  more: Partial<StoreOptions<TestTypes, MacIndex>> = {}
): Promise<Store<TestTypes, MacIndex>> {
  return Store.open(optionsFor(directory, more))
}

export const node = (name: string, mac: string | null = null): Node => ({ name, mac, tags: [] })

/** An error as the kernel gives it. */
export function systemError(code: 'ENOSPC' | 'EIO'): Error {
  return Object.assign(new Error(`${code}: injected`), { code, errno: { ENOSPC: -28, EIO: -5 }[code] })
}

type Operation = 'replace' | 'remove' | 'syncDirectory' | 'openLog' | 'write' | 'datasync' | 'truncate'

/**
 * The real files, with every operation counted, and `before` run first: it may throw (the disk fails) or wait
 * (the disk is slow).
 */
export class TestFiles implements FileLayer {
  readonly counts = new Map<Operation, number>()
  /** Open files by descriptor. */
  readonly #logs = new Map<number, string>()
  /** Whether a write to a log that fails has written half of it. */
  isShort = false
  before: (operation: Operation, file: string) => void | Promise<void> = () => {}

  count(operation: Operation): number {
    return this.counts.get(operation) ?? 0
  }

  async runSteps(steps: readonly DiskStep[]) {
    const kept: string[] = []
    for (const [i, step] of steps.entries()) {
      try {
        kept.push(...(await this.#one(step)))
      } catch (error) {
        throw StepError.of(error, i, [...kept, ...(error instanceof StepError ? error.kept : [])])
      }
    }
    return kept
  }

  async #one(step: DiskStep): Promise<readonly string[]> {
    if ('replace' in step) await this.#enter('replace', step.replace)
    if ('remove' in step) await this.#enter('remove', step.remove)
    if ('syncDirectory' in step) await this.#enter('syncDirectory', step.syncDirectory)
    if ('write' in step) {
      await this.#enter('write', this.#logs.get(step.write) ?? '').catch(async error => {
        const bytes = step.bytes.subarray(0, step.bytes.length / 2)
        if (this.isShort) await realFiles.runSteps([{ ...step, bytes, zeros: 0, sync: false }])
        throw error
      })
      await realFiles.runSteps([{ ...step, sync: false }])
      if (step.sync) await this.#enter('datasync', this.#logs.get(step.write) ?? '')
    }
    return realFiles.runSteps([step])
  }

  async replace(file: string, text: string | Iterable<string>) {
    await this.#enter('replace', file)
    await realFiles.replace(file, text)
  }

  async syncDirectory(directory: string) {
    await this.#enter('syncDirectory', directory)
    await realFiles.syncDirectory(directory)
  }

  async openLog(file: string, empty: boolean) {
    await this.#enter('openLog', file)
    const log = await realFiles.openLog(file, empty)
    const tested: LogFile = {
      fd: log.fd,
      datasync: async () => {
        await this.#enter('datasync', file)
        await log.datasync()
      },
      truncate: async (sizeBytes: number) => {
        await this.#enter('truncate', file)
        await log.truncate(sizeBytes)
      },
      close: () => log.close()
    }
    this.#logs.set(log.fd, file)
    return tested
  }

  async #enter(operation: Operation, file: string): Promise<void> {
    this.counts.set(operation, this.count(operation) + 1)
    await this.before(operation, file)
  }
}

/** A clock on which all delays are so many times shorter. */
export const fastClock = (times: number): Clock => ({
  now: () => performance.now() * times,
  after(ms, work) {
    const timer = setTimeout(work, ms / times)
    return () => clearTimeout(timer)
  }
})

/** A gate that files wait at: `arrived` resolves when the first one does. */
export function gate(): { wait: () => Promise<void>; open: () => void; arrived: Promise<void> } {
  let open = () => {}
  let arrive = () => {}
  const passage = new Promise<void>(resolve => {
    open = resolve
  })
  const arrived = new Promise<void>(resolve => {
    arrive = resolve
  })
  const wait = () => {
    arrive()
    return passage
  }
  return { wait, open, arrived }
}
