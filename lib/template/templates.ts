import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { compileTemplate } from './compiler.js'
import { Failure, TemplateError } from './errors.js'
import type { Finder, Template } from './template.js'

export { TemplateError } from './errors.js'

const LOOK_AGAIN_MS = 1000
const NO_TEMPLATE = 'there is no such template'

export interface TemplatesOptions {
  /** Directory of the templates; names are paths below it. */
  readonly directory: string
  /** Milliseconds on a clock that never goes back. */
  readonly now?: () => number
}

interface Loaded {
  readonly template: Template | TemplateError | undefined
  /** What tells one content of the file from another; '' where there is no file. */
  readonly stamp: string
  lookedAtMs: number
}

/**
 * The templates of a directory, compiled when first used. A change is seen without a restart: a file is
 * looked at once a second at most (rules 4.11).
 */
export class Templates {
  readonly #directory: string
  readonly #now: () => number
  readonly #include: Finder
  readonly #loaded = new Map<string, Loaded>()

  constructor({ directory, now = () => performance.now() }: TemplatesOptions) {
    this.#directory = directory
    this.#now = now
    this.#include = name => {
      if (!this.#isBelow(name)) throw new Failure(`${name} is not a path below the directory of templates`)
      return this.#find(name)
    }
  }

  /** A name that was looked at before is one. */
  #isBelow(name: string): boolean {
    return this.#loaded.has(name) || isBelow(name)
  }

  /**
   * The text of the template `name`, a path such as 'boot/templ_boot_ipxe.cfg'. Costs microseconds, plus a
   * stat once a second. Throws TemplateError: no such file, a syntax error, an undefined variable, a value
   * that cannot be printed.
   */
  render(name: string, data: Readonly<Record<string, unknown>>): string {
    const template = this.#isBelow(name) ? this.#find(name) : undefined
    if (template === undefined) throw new TemplateError(name, 1, 1, NO_TEMPLATE)
    return template.render(data)
  }

  /**
   * Stands for the present content of a template: another object once its file has changed, undefined for one that
   * cannot be rendered.
   */
  identity(name: string): object | undefined {
    try {
      return this.#isBelow(name) ? this.#find(name) : undefined
    } catch {
      return undefined
    }
  }

  /**
   * Reads every file below the directory, as `svcd check` does, and gives all errors; hidden files and
   * editors' copies (`x~`) are no templates. An include that is written as a plain string must exist.
   */
  check(): TemplateError[] {
    const errors: TemplateError[] = []
    for (const name of this.#names(errors)) {
      try {
        const template = this.#load(name).template
        if (template === undefined) throw new TemplateError(name, 1, 1, NO_TEMPLATE)
        if (template instanceof TemplateError) throw template
        for (const { file, error } of template.includes)
          if (!isBelow(file) || this.#stamp(file) === '') throw error
      } catch (error) {
        errors.push(TemplateError.of(error, name))
      }
    }
    return errors
  }

  #names(errors: TemplateError[]): string[] {
    try {
      return readdirSync(this.#directory, { recursive: true, withFileTypes: true })
        .filter(entry => entry.isFile() || entry.isSymbolicLink())
        .map(entry => join(entry.parentPath, entry.name).slice(join(this.#directory, '/').length))
        .filter(name => !name.endsWith('~') && !name.split('/').some(part => part.startsWith('.')))
        .sort()
    } catch (error) {
      errors.push(TemplateError.of(error, this.#directory))
      return []
    }
  }

  /** undefined where there is no such file. Throws the TemplateError of a file that does not compile. */
  #find(name: string): Template | undefined {
    let loaded = this.#loaded.get(name)
    const now = this.#now()
    if (loaded === undefined || now - loaded.lookedAtMs >= LOOK_AGAIN_MS) {
      if (loaded !== undefined && loaded.stamp === this.#stamp(name)) loaded.lookedAtMs = now
      else loaded = this.#load(name)
      this.#loaded.set(name, loaded)
    }
    if (loaded.template instanceof TemplateError) throw loaded.template
    return loaded.template
  }

  #load(name: string): Loaded {
    // the stamp first: a file that changes while it is read is read again
    const stamp = this.#stamp(name)
    return { stamp, lookedAtMs: this.#now(), template: stamp === '' ? undefined : this.#compile(name) }
  }

  #compile(name: string): Template | TemplateError {
    try {
      const bytes = readFileSync(join(this.#directory, name))
      const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
      return compileTemplate(text, name, this.#include)
    } catch (error) {
      return TemplateError.of(error, name)
    }
  }

  #stamp(name: string): string {
    try {
      const stat = statSync(join(this.#directory, name), { throwIfNoEntry: false })
      return stat === undefined ? '' : `${stat.mtimeMs} ${stat.size} ${stat.ino}`
    } catch {
      // reading it will say why
      return 'unreadable'
    }
  }
}

/** Names come from includes, whose names may come from data: none leads out of the directory. */
function isBelow(name: string): boolean {
  return (
    !name.includes('\0') && !name.includes('\\') && name.split('/').every(part => !/^\.{0,2}$/.test(part))
  )
}
