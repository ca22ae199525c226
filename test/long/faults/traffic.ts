import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { damage, Known, prepare, WRITERS } from '../../api/writers.js'
import type { Daemon } from '../../support/daemon.js'
import type { Figures } from '../../support/proof.js'

/** Memory of a process, in MB. */
function memoryMb(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024
}

/**
 * Every kind of write to a real daemon, without a pause, while its disk fails and is well again. What was
 * acknowledged has to be there; what was refused, with 503 and a reason, must not.
 */
export class Traffic {
  readonly #all = WRITERS.map(writer => new Known(writer))
  readonly #unmeant: string[] = []
  readonly #lost: string[] = []
  readonly #halves: string[] = []
  #crashes = 0
  #backMs = 0
  #refused = 0
  #tried = 0
  #leastMb: number
  #mostMb = 0

  private constructor(readonly daemon: Daemon) {
    this.#leastMb = memoryMb(this.#pid)
  }

  /** Makes the objects that are written to. The daemon runs. */
  static async on(daemon: Daemon): Promise<Traffic> {
    const client = daemon.client()
    await prepare(client)
    client.close()
    return new Traffic(daemon)
  }

  get #pid(): number {
    return this.daemon.child?.pid ?? 0
  }

  /** Writes while `fault` goes on, then until the daemon is well; looks at what is there. */
  async round(fault: () => Promise<void>): Promise<void> {
    this.#tried++
    let isOver = false
    const writing = this.#all.map(known => this.#write(known, () => isOver))
    await fault()
    const from = performance.now()
    await this.#isWell()
    this.#backMs = Math.max(this.#backMs, performance.now() - from)
    isOver = true
    await Promise.all(writing)
    this.#mostMb = Math.max(this.#mostMb, memoryMb(this.#pid))
    await this.check()
  }

  /** Looks at what the daemon shows now. */
  async check(): Promise<void> {
    const client = this.daemon.client()
    const { gone, halves } = await damage(client, this.#all)
    client.close()
    this.#lost.push(...gone)
    this.#halves.push(...halves)
  }

  /** What was found, with examples of what should not have been. */
  get found() {
    const figures: Figures = {
      tried: this.#tried,
      crashes: this.#crashes,
      unmeant5xx: this.#unmeant.length,
      lost: this.#lost.length,
      halfDone: this.#halves.length,
      backMs: Math.round(this.#backMs),
      memoryMb: this.#mostMb - this.#leastMb
    }
    const acknowledged = this.#all.reduce((sum, known) => sum + known.acknowledged, 0)
    const wrong = [...this.#unmeant, ...this.#lost, ...this.#halves].slice(0, 20)
    return { figures, wrong, acknowledged, refused: this.#refused, crashes: this.#crashes }
  }

  /**
   * Resolves when a write is taken and the service says that it is well; after 60 s it gives up, which is a
   * crash.
   */
  async #isWell(): Promise<void> {
    const client = this.daemon.client()
    for (const giveUp = performance.now() + 60_000; performance.now() < giveUp; await delay(100)) {
      const service = await client.get('/monitor/service/svcd').catch(() => undefined)
      // A small disk that is nearly full is told too: the write alone tells whether it is well.
      const isDiskOnly =
        service?.status === 503 && /^service svcd: the disk of/.test(JSON.parse(service.text).message)
      if (service?.status !== 200 && !isDiskOnly) continue
      const write = await client
        .post('/config/group/well', { comment: String(Math.random()) })
        .catch(() => undefined)
      if (write && write.status < 300) return client.close()
    }
    this.#crashes++
    this.#unmeant.push('it did not come back within 60 s')
    client.close()
  }

  async #write(known: Known, isOver: () => boolean): Promise<void> {
    const client = this.daemon.client()
    while (!isOver()) {
      const answer = await known.step(client)
      if (answer === undefined) {
        this.#crashes++
        this.#unmeant.push(`${known.writer.name}: no answer`)
        break
      }
      if (answer.status < 300) continue
      this.#refused++
      const hasReason = /"message":"the store is unavailable: ./.test(answer.text)
      if (answer.status !== 503 || !hasReason)
        this.#unmeant.push(`${known.writer.name}: ${answer.status} ${answer.text.slice(0, 200)}`)
      await delay(10)
    }
    client.close()
  }
}
