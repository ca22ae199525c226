const NAMED = 20

/** What a pack does not carry, gathered for its record: every kind with its count and the first names. */
export class Omitted {
  readonly #kinds = new Map<string, { count: number; readonly names: string[] }>()

  /** `kind` begins a sentence ("sockets are left out"); `name` is printable. */
  add(kind: string, name: string): void {
    const found = this.#kinds.get(kind) ?? { count: 0, names: [] }
    this.#kinds.set(kind, found)
    found.count++
    if (found.names.length < NAMED) found.names.push(name)
  }

  sentences(): string[] {
    return [...this.#kinds].map(
      ([kind, { count, names }]) =>
        `${kind} (${count}): ${names.join(', ')}${count > names.length ? ', …' : ''}`
    )
  }
}

export const SOCKETS = 'sockets are left out'
export const ELSEWHERE = 'what is mounted in the image or lies on another file system is left out'
