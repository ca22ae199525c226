/**
 * The variables of a template, of a loop's body or of another block that has its own. What a name means is
 * settled while the template is read: the innermost variable that is set by then, else what the data holds.
 *
 * jinja2 gives the same, with one exception: a name that is first set below a block which reads it is
 * undefined in that block, whatever the data holds. set() tells of it, and the template is refused.
 */
export class Scope {
  /** How many `if` are open in this scope. */
  branches = 0
  /** Where a frame keeps what `set` gives to the names of this scope. */
  readonly resets: number[] = []
  readonly #slots = new Map<string, number>()
  /** Names that this scope itself has read or set. */
  readonly #used = new Set<string>()
  /** Names that are set here whatever the data are. */
  readonly #certain = new Set<string>()
  /** Names that blocks of this scope have read, and that may be the data's. */
  readonly #readInside = new Set<string>()

  constructor(
    readonly parent: Scope | undefined,
    readonly newSlot: () => number
  ) {}

  /** Where a frame may keep what `name` means, innermost first. */
  slotsOf(name: string): number[] {
    const own = this.#slots.get(name)
    const around = this.parent?.slotsOf(name) ?? []
    return own === undefined ? around : [own, ...around]
  }

  /** As slotsOf(), for an expression that reads the name. */
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

  /** Where a frame is to keep the variable `name`; undefined where a block above has taken it for the data's. */
  set(name: string): number | undefined {
    if (this.#readInside.has(name) && !this.#used.has(name)) return undefined
    const isNew = !this.#slots.has(name)
    const slot = this.give(name, this.branches === 0)
    if (isNew) this.resets.push(slot)
    return slot
  }

  /** Where a frame is to keep the variable `name`, which a loop gives. */
  give(name: string, isCertain = true): number {
    const slot = this.#slots.get(name) ?? this.newSlot()
    this.#slots.set(name, slot)
    this.#used.add(name)
    if (isCertain) this.#certain.add(name)
    return slot
  }
}
