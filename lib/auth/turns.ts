/**
 * Runs at most `limit` tasks at once. Those that wait are taken in turn from each party, so that one that
 * asks a thousand times delays another by no more than one of its own tasks per place.
 */
export class Turns {
  readonly #limit: number
  readonly #waiting = new Map<string, (() => void)[]>()
  #running = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** The task's result, once its turn came; a task that throws gives its place back too. */
  async run<T>(party: string, task: () => Promise<T>): Promise<T> {
    if (this.#running < this.#limit) this.#running++
    else await this.#turn(party)
    try {
      return await task()
    } finally {
      this.#next()
    }
  }

  #turn(party: string): Promise<void> {
    return new Promise(resolve => {
      const queue = this.#waiting.get(party)
      if (queue) queue.push(resolve)
      else this.#waiting.set(party, [resolve])
    })
  }

  /** Hands the place on: a party with more to do goes to the end of the row. */
  #next(): void {
    for (const [party, queue] of this.#waiting) {
      const start = queue.shift()
      this.#waiting.delete(party)
      if (queue.length > 0) this.#waiting.set(party, queue)
      start?.()
      return
    }
    this.#running--
  }
}
