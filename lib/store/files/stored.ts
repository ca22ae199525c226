import { readRegularFileSync } from '../../disk/regular-file.js'
import type { Problem } from '../errors.js'
import { decodeUtf8 } from '../json.js'
import type { Stored, Write } from '../medium.js'
import { type Intent, type Intents, listing, ofUnknownType, readIntents } from './intents.js'
import { entryOf, objectFile } from './paths.js'

/**
 * A state directory as read, unfinished intents applied: nothing was written to it. Synchronous on purpose: it is several
 * times faster for 100,000 small files, and nothing is served before it ends.
 */
export class StoredFiles implements Stored {
  readonly #directory: string
  readonly #found: Intents
  /** By type and name what the intents promise; undefined: no file. */
  readonly #promised = new Map<string, Map<string, string | undefined>>()
  /** By type the objects that have a file. */
  readonly #files = new Map<string, Set<string>>()
  readonly #leftovers: string[]
  readonly #foreign: Problem[] = []

  constructor(directory: string) {
    this.#directory = directory
    this.#found = readIntents(directory)
    this.#leftovers = [...this.#found.leftovers]
    for (const write of this.#found.intents.flatMap(({ writes }) => writes)) this.#promise(write)
  }

  get intents(): readonly Intent[] {
    return this.#found.intents
  }

  /** Files that an interrupted atomic write left, of the types that were listed; safe to remove when no daemon runs. */
  get leftovers(): readonly string[] {
    return this.#leftovers
  }

  get foreign(): readonly Problem[] {
    return this.#foreign
  }

  problems(types?: ReadonlySet<string>): readonly Problem[] {
    const { intents, problems } = this.#found
    return types ? [...problems, ...ofUnknownType(this.#directory, intents, types)] : problems
  }

  names(type: string): Iterable<string> {
    const names = new Set(this.#filesOf(type))
    for (const [name, text] of this.#promised.get(type) ?? [])
      if (text === undefined) names.delete(name)
      else names.add(name)
    return names
  }

  text(type: string, name: string): string | undefined {
    const promised = this.#promised.get(type)
    if (promised?.has(name)) return promised.get(name)
    if (!this.#filesOf(type).has(name)) return undefined
    return decodeUtf8(readRegularFileSync(objectFile(this.#directory, type, name)))
  }

  place(type?: string, name?: string): string {
    if (type === undefined) return this.#directory
    return name === undefined ? `${this.#directory}/${type}` : objectFile(this.#directory, type, name)
  }

  #promise({ type, name, text }: Write): void {
    const promised = this.#promised.get(type) ?? new Map<string, string | undefined>()
    this.#promised.set(type, promised.set(name, text))
  }

  #filesOf(type: string): ReadonlySet<string> {
    const known = this.#files.get(type)
    if (known) return known
    const names = new Set<string>()
    for (const fileName of listing(this.place(type))) {
      const entry = entryOf(fileName)
      const file = `${this.place(type)}/${fileName}`
      if (typeof entry !== 'string') names.add(entry.object)
      else if (entry === 'leftover') this.#leftovers.push(file)
      else if (entry === 'foreign') this.#foreign.push({ file, message: 'not a file of the store' })
    }
    this.#files.set(type, names)
    return names
  }
}
