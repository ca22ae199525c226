import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { FileMedium } from '../../lib/store/files/medium.js'
import type { Medium } from '../../lib/store/medium.js'
import { scratch } from '../support/scratch.js'
import { systemError, TestFiles } from './fixtures.js'
import { type Place, testMedium } from './medium-suite.js'

class Directory implements Place {
  readonly words: readonly string[]
  readonly #directory: string
  readonly #layers = new Map<Medium, TestFiles>()
  #left = Number.POSITIVE_INFINITY
  failures = 0

  constructor(t: Test) {
    this.#directory = scratch(t)
    this.words = ['files', this.#directory]
  }

  medium(): Medium {
    const files = new TestFiles()
    files.before = () => {
      if (this.#left-- > 0) return
      this.failures++
      throw systemError('EIO')
    }
    const medium = new FileMedium({ directory: this.#directory, files })
    this.#layers.set(medium, files)
    return medium
  }

  async abandon(medium: Medium): Promise<void> {
    const files = this.#layers.get(medium)
    if (files)
      files.before = () => {
        throw systemError('EIO')
      }
    // The kernel lock goes with it, as it does with a process.
    await medium.close()
  }

  async put(type: string, name: string, text: string): Promise<void> {
    mkdirSync(join(this.#directory, type), { recursive: true })
    writeFileSync(join(this.#directory, type, `${name}.json`), text)
  }

  copy(t: Test): Directory {
    const copy = new Directory(t)
    cpSync(this.#directory, copy.#directory, { recursive: true })
    return copy
  }

  failAfter(writes: number): void {
    this.#left = writes
    this.failures = 0
  }

  heal(): void {
    this.#left = Number.POSITIVE_INFINITY
  }
}

testMedium({
  place: async t => new Directory(t),
  copy: (t, place) => (place as Directory).copy(t),
  // A step on the disk that fails is not done.
  hasLate: false,
  kills: 10
})
