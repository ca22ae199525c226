/**
 * The variables of a template, of a loop's body, or of another block with its own variables. Names are
 * resolved while the template is read: to the innermost variable set so far, else to the data.
 *
 * jinja2 resolves in the same way, with one exception: a name that is first set below a block that reads it
 * is undefined in that block, whatever the data holds. set() detects this, and the template is refused.
 */
export class Scope {
  /** Number of open `if` in this scope. */
  branches = 0
  /** Slots of this scope's variables, which are cleared when the block begins. */
  readonly resets: number[] = []
  readonly #slots = new Map<string, number>()
  /** Names that this scope has read or set itself. */
  readonly #used = new Set<string>()
  /** Names that are set here whatever the data is. */
  readonly #certain = new Set<string>()
  /** Names that inner blocks have read and that may come from the data. */
  readonly #readInside = new Set<string>()

  constructor(
    readonly parent: Scope | undefined,
    readonly newSlot: () => number
  ) {}

  /** Returns the slots that may hold `name`, innermost first. */
  slotsOf(name: string): number[] {
    const own = this.#slots.get(name)
    const around = this.parent?.slotsOf(name) ?? []
    return own === undefined ? around : [own, ...around]
  }

  /** As slotsOf(), and notes that an expression reads the name. */
  read(name: string): number[] {
    this.#used.add(name)
    if (!this.#isCertain(name))
      for (let scope = this.parent; scope !== undefined; scope = scope.parent) scope.#readInside.add(name)
    return this.slotsOf(name)
  }

  #isCertain(name: string): boolean {
    if (this.#certain.has(name)) return true
    return this.parent ? this.parent.#isCertain(name) : false
  }

  /** Returns the slot for a variable; undefined if an earlier block has read it as data. */
  set(name: string): number | undefined {
    if (this.#readInside.has(name) && !this.#used.has(name)) return undefined
    const isNew = !this.#slots.has(name)
    const slot = this.give(name, this.branches === 0)
    if (isNew) this.resets.push(slot)
    return slot
  }

  /** Returns the slot for a variable that a loop assigns. */
  give(name: string, isCertain = true): number {
    const slot = this.#slots.get(name) ?? this.newSlot()
    this.#slots.set(name, slot)
    this.#used.add(name)
    if (isCertain) this.#certain.add(name)
    return slot
  }
}
