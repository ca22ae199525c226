import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Controller } from '../../support/controller.js'

const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'pipe' })

/**
 * The state directory of a controller on a disk of its own that is full, where its names cannot change
 * either: on a full disk a file can still be removed.
 */
export class FullDisk {
  readonly #state: string
  readonly #filler: string
  #full = false

  private constructor(state: string) {
    this.#state = state
    this.#filler = join(state, 'filler')
  }

  /** Moves the state of a controller, which is started again, to such a disk. */
  static async under(test: Test, c: Controller): Promise<FullDisk> {
    const state = join(c.directory, 'state')
    const copy = mkdtempSync(join(tmpdir(), 'svcd-test-'))
    await c.daemon.close(1000)
    cpSync(state, copy, { recursive: true })
    try {
      run('mount', '-t', 'tmpfs', '-o', 'size=2m,mode=0700', 'tmpfs', state)
    } catch (error) {
      throw new Error(`a full disk needs a mount: run the tests as root (sudo make test): ${error}`)
    }
    const disk = new FullDisk(state)
    test.teardown(async () => {
      disk.free()
      await c.daemon.close(1000)
      cpSync(state, copy, { recursive: true })
      run('umount', state)
      cpSync(copy, state, { recursive: true })
      rmSync(copy, { recursive: true })
    })
    cpSync(copy, state, { recursive: true })
    await c.restart()
    disk.#fill()
    return disk
  }

  #fill(): void {
    mkdirSync(this.#filler)
    fill(this.#filler)
    run('mount', '-o', 'bind,ro', this.#state, this.#state)
    this.#full = true
  }

  /** The disk as it should be. */
  free(): void {
    if (!this.#full) return
    run('umount', this.#state)
    rmSync(this.#filler, { recursive: true })
    this.#full = false
  }
}

/** Writes to the last byte and takes the last name. */
function fill(directory: string): void {
  for (let size = 65_536, i = 0; size > 0; i++) {
    try {
      writeFileSync(join(directory, `f${i}`), Buffer.alloc(size))
    } catch {
      size = size === 1 ? 0 : size >> 1
    }
  }
}
