import { constants } from 'node:fs'
import { type FileHandle, lstat, open, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { LRUCache } from 'lru-cache'
import { Background } from '../base/background.js'
import { inParallel } from '../base/concurrency.js'
import { cleanLine } from '../control/bmc.js'
import { replaceAmongOthers, unlessMissing, withOpen } from '../disk/file.js'
import { FILE } from '../disk/open-directory.js'

/** A line of a console. */
export interface ConsoleLine {
  /** Milliseconds since 1970; undefined for a line of conmand itself. */
  readonly time: number | undefined
  /** Holds no control character. */
  readonly text: string
}

interface LogsOptions {
  readonly directory: string
  /** Bytes at which the log of a node is rotated. */
  readonly logSize: number
  /** Bytes of all logs together. */
  readonly logTotal: number
  readonly hasNode: (name: string) => boolean
  readonly onFailure: (reason: string) => void
}

/** Bytes read from the end of a log. */
const TAIL_BYTES = 64 * 1024
export const MOST_LINES = 1000
const LONGEST_LINE = 500
/** A log is rotated within this time; meanwhile a console that floods may exceed its size. */
const SWEEP_MS = 10_000
const CACHED_MS = 2000
const AT_ONCE = 4
const empty = Buffer.alloc(0)

/** conmand's log option `sanitize` writes an escape character as ^[. */
const terminalCodes = /\^\[(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Z]|[=>78cDEHM])|\^[@GHOQ]/g
/** Ends a log, the older file, and what a killed rotation left of it. */
const suffix = /\.log(?:\.1(?:\.[0-9a-f]{12})?)?$/
const stamp = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) ?/

/** The logs that conmand writes: `<node>.log`, and one older file `<node>.log.1` of each. */
export class ConsoleLogs {
  readonly #tails = new LRUCache<string, Promise<readonly ConsoleLine[]>>({ max: 64, ttl: CACHED_MS })
  readonly #sweeping: Background

  constructor(private readonly options: LogsOptions) {
    this.#sweeping = new Background({
      work: () => this.sweep(),
      everyMs: SWEEP_MS,
      onFailure: options.onFailure
    })
  }

  start(): void {
    this.#sweeping.wake()
  }

  /** Returns the last lines of a node's console, at most `MOST_LINES`; none without a log. */
  tail(node: string): Promise<readonly ConsoleLine[]> {
    const cached = this.#tails.get(node)
    if (cached) return cached
    const read = this.#read(node)
    this.#tails.set(node, read)
    read.catch(() => this.#tails.delete(node))
    return read
  }

  async #read(node: string): Promise<readonly ConsoleLine[]> {
    const file = join(this.options.directory, `${node}.log`)
    const text = (await unlessMissing(endOf(file, TAIL_BYTES), empty)).toString('latin1')
    const room = TAIL_BYTES - text.length
    const older = room > 0 ? (await unlessMissing(endOf(`${file}.1`, room), empty)).toString('latin1') : ''
    const lines = `${older}${text}`.split('\n').map(readLine)
    return lines.filter(line => line.text !== '').slice(-MOST_LINES)
  }

  /** Rotates logs that are too long; removes those of nodes that are gone, links and pipes. */
  async sweep(): Promise<void> {
    const names = (await unlessMissing(readdir(this.options.directory), [])).filter(name => suffix.test(name))
    const most = this.mostBytes(names.filter(name => name.endsWith('.log')).length)
    const failures: unknown[] = []
    await inParallel(names, AT_ONCE, name =>
      unlessMissing(this.#sweepOne(name, most), undefined).catch(error => void failures.push(error))
    )
    if (failures.length > 0) throw failures[0]
  }

  async #sweepOne(name: string, most: number): Promise<void> {
    const file = join(this.options.directory, name)
    const found = await lstat(file)
    if (!this.options.hasNode(name.replace(suffix, '')) || !found.isFile()) await rm(file, { force: true })
    else if (name.endsWith('.log') && found.size > most) await rotate(file, most)
  }

  /** Returns the bytes at which each of so many logs is rotated. */
  mostBytes(logs: number): number {
    const { logSize, logTotal } = this.options
    return Math.min(logSize, Math.floor(logTotal / (2 * Math.max(1, logs))))
  }

  close(): Promise<void> {
    return this.#sweeping.close()
  }
}

/** Copies and empties a log: conmand appends to the file that it has open, and need not reopen it. */
const rotate = (file: string, most: number): Promise<void> =>
  withOpen(open(file, FILE | constants.O_RDWR), async log => {
    // A log that floods has grown far beyond its size.
    await replaceAmongOthers(`${file}.1`, await lastBytes(log, file, most), 0o600)
    await log.truncate(0)
  })

/** Returns at most so many of the last bytes of a file. */
const endOf = (file: string, bytes: number): Promise<Buffer> =>
  withOpen(open(file, FILE), log => lastBytes(log, file, bytes))

/** Throws Error for a pipe: conmand, which BMCs may have taken over, writes the directory. */
async function lastBytes(log: FileHandle, file: string, bytes: number): Promise<Buffer> {
  const found = await log.stat()
  if (!found.isFile()) throw new Error(`${file} is not a regular file: remove it`)
  const buffer = Buffer.alloc(Math.min(found.size, bytes))
  const { bytesRead } = await log.read(buffer, 0, buffer.length, found.size - buffer.length)
  return buffer.subarray(0, bytesRead)
}

/** Reads a line of a log; conmand stamps it with the local time. */
function readLine(line: string): ConsoleLine {
  const [whole = '', day, time] = stamp.exec(line) ?? []
  const text = line.slice(whole.length).replaceAll('\r', '').replace(terminalCodes, '')
  return { time: day ? Date.parse(`${day}T${time}`) : undefined, text: cleanLine(text, LONGEST_LINE) }
}
