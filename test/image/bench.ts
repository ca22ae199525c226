import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { Mutex } from '../../lib/base/concurrency.js'
import { createLog } from '../../lib/base/log.js'
import { loadConfig } from '../../lib/config/load.js'
import { helperSettingsOf } from '../../lib/helper/directories.js'
import { localHelper } from '../../lib/helper/local.js'
import type { ImageContext } from '../../lib/image/context.js'
import { Notes } from '../../lib/image/notes.js'
import type { JobContext } from '../../lib/jobs/jobs.js'
import { daemonActor, Model, storeOptions } from '../../lib/model/model.js'
import { SecretBox } from '../../lib/model/secret-box.js'
import { iniSettings } from '../../lib/model/settings.js'
import type { ClusterStore, Tx } from '../../lib/model/stored.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { scratch } from '../support/scratch.js'

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))

/** The work on images without a daemon around it, with a clock that the test moves. */
export class Bench {
  readonly log: string[] = []
  now = 1_000_000_000
  /** By how much of that the clock was set. */
  clockSet = 0

  private constructor(
    readonly directory: string,
    readonly context: ImageContext
  ) {}

  static async open(t: Test, ...overrides: string[]): Promise<Bench> {
    const directory = scratch(t)
    for (const name of ['files', 'images']) mkdirSync(join(directory, name))
    const config = loadConfig(ini, [
      `paths.state=${join(directory, 'state')}`,
      `paths.files=${join(directory, 'files')}`,
      `image.directory=${join(directory, 'images')}`,
      ...overrides
    ])
    const box = new SecretBox(Buffer.alloc(32))
    const options = storeOptions(config.paths.state, iniSettings(config), box, '0.1.0')
    const medium = new FileMedium(options)
    const store: ClusterStore = await Store.open({ ...options, medium })
    t.teardown(() => store.close())
    const log: string[] = []
    const model = new Model({
      store,
      ini: iniSettings(config),
      now: () => bench.now,
      box,
      audit: async () => {}
    })
    const notes = await Notes.open(memory => medium.openRecords('work', memory))
    const bench: Bench = new Bench(directory, {
      config,
      model,
      notes,
      work: localHelper(helperSettingsOf(config, true)),
      log: createLog('info', line => log.push(line)),
      now: () => bench.now,
      ticks: () => bench.now - bench.clockSet,
      ownsObjects: () => true,
      files: new Mutex(),
      coming: new Set()
    })
    Object.assign(bench, { log })
    return bench
  }

  path(...names: string[]): string {
    return join(this.directory, ...names)
  }

  put(change: (tx: Tx) => void): Promise<void> {
    return this.context.model.change(daemonActor, change)
  }

  /** What a job sees; `onLine` is called with each line while the job waits for it. */
  job(onLine: (line: string) => void = () => {}, signal = new AbortController().signal) {
    const lines: string[] = []
    const results: Record<string, unknown> = {}
    const job: JobContext & { lines: string[]; results: Record<string, unknown> } = {
      ...{ id: '0'.repeat(32), signal, lines, results },
      line: text => {
        lines.push(text)
        onLine(text)
      },
      progress: () => {},
      result: (key, value) => {
        results[key] = value
      }
    }
    return job
  }
}
