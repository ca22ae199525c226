/** Gives the word to one piece of work after the other, in the order they asked for it. */
export class Turn {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs `work` when all that asked before it is done; resolves or rejects as it does. */
  take<R>(work: () => Promise<R>): Promise<R> {
    const mine = this.#last.then(work, work)
    this.#last = mine.catch(() => undefined)
    return mine
  }
}
