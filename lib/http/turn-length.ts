/** How long a turn of the event loop takes just now. It is measured only while somebody asks, so that an idle loop can rest. */
export class TurnLength {
  #ms = 0
  #measuring = false

  /** Milliseconds of the last turn that was measured; asking begins the next measurement. */
  get ms(): number {
    if (!this.#measuring) {
      this.#measuring = true
      setImmediate(() => this.#measure(performance.now()))
    }
    return this.#ms
  }

  #measure(begunMs: number): void {
    setImmediate(() => {
      this.#ms = performance.now() - begunMs
      this.#measuring = false
    })
  }
}
