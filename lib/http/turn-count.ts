/** How much of something there was in a turn of the event loop. Turns are looked at only while somebody asks, so that an idle loop can rest. */
export class TurnCount {
  #all = 0
  #inTurn = 0
  #looking = false

  add(): void {
    this.#all++
  }

  /** How many there were in the last turn that was looked at; asking lets another one be looked at. */
  get inTurn(): number {
    if (!this.#looking) {
      this.#looking = true
      setImmediate(() => this.#look(this.#all))
    }
    return this.#inTurn
  }

  #look(before: number): void {
    setImmediate(() => {
      this.#inTurn = this.#all - before
      this.#looking = false
    })
  }
}
