import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { compileTemplate } from './compiler.js'
import { OperationError, TemplateError } from './errors.js'
import type { IncludeResolver, Template } from './template.js'

export { TemplateError } from './errors.js'

const LOOK_AGAIN_MS = 1000
const NO_TEMPLATE = 'there is no such template'

export interface TemplatesOptions {
  /** Directory of the templates, whose names are paths below it. */
  readonly directory: string
  /** Monotonic clock in milliseconds. */
  readonly now?: () => number
}

interface Loaded {
  readonly template: Template | TemplateError | undefined
  /** Identifies the content of the file; '' without a file. */
  readonly stamp: string
  lookedAtMs: number
}

/** The templates of a directory, compiled on first use, and again after a change (rules 4.11). */
export class Templates {
  readonly #loaded = new Map<string, Loaded>()
  readonly #nowMs: () => number
  readonly #include: IncludeResolver = name => {
    const template = this.#find(name)
    if (!template && !isBelow(name))
      throw new OperationError(`${name} is not a path below the directory of templates`)
    return template
  }

  constructor(private readonly options: TemplatesOptions) {
    this.#nowMs = options.now ?? (() => performance.now())
  }

  /** Renders the template `name`, in microseconds plus a stat a second. Throws TemplateError. */
  render(name: string, data: Readonly<Record<string, unknown>>): string {
    // A missing file, a syntax error, or an undefined or unprintable value makes it throw.
    const template = this.#find(name)
    if (template === undefined) throw new TemplateError(name, 1, 1, NO_TEMPLATE)
    return template.render(data)
  }

  /** Returns an object that stands for a template's content until it changes; undefined for a broken one. */
  identity(name: string): object | undefined {
    try {
      return this.#find(name)
    } catch {
      return undefined
    }
  }

  /** Returns the errors of all files, for `svcd check`; hidden files and copies (`x~`) are skipped. */
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
    const { directory } = this.options
    try {
      return readdirSync(directory, { recursive: true, withFileTypes: true })
        .filter(entry => entry.isFile() || entry.isSymbolicLink())
        .map(entry => join(entry.parentPath, entry.name).slice(join(directory, '/').length))
        .filter(name => !name.endsWith('~') && !name.split('/').some(part => part.startsWith('.')))
        .sort()
    } catch (error) {
      errors.push(TemplateError.of(error, directory))
      return []
    }
  }

  /** Returns undefined without such a file below the directory. Throws the TemplateError of a broken one. */
  #find(name: string): Template | undefined {
    let loaded = this.#loaded.get(name)
    if (loaded === undefined && !isBelow(name)) return undefined
    const now = this.#nowMs()
    if (loaded === undefined || now - loaded.lookedAtMs >= LOOK_AGAIN_MS) {
      if (loaded !== undefined && loaded.stamp === this.#stamp(name)) loaded.lookedAtMs = now
      else loaded = this.#load(name)
      this.#loaded.set(name, loaded)
    }
    if (loaded.template instanceof TemplateError) throw loaded.template
    return loaded.template
  }

  #load(name: string): Loaded {
    // The stamp comes first, so that a change during the read is noticed.
    const stamp = this.#stamp(name)
    return { stamp, lookedAtMs: this.#nowMs(), template: stamp === '' ? undefined : this.#compile(name) }
  }

  #compile(name: string): Template | TemplateError {
    try {
      const bytes = readFileSync(join(this.options.directory, name))
      const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
      return compileTemplate(text, name, this.#include)
    } catch (error) {
      return TemplateError.of(error, name)
    }
  }

  #stamp(name: string): string {
    try {
      const stat = statSync(join(this.options.directory, name), { throwIfNoEntry: false })
      return stat === undefined ? '' : `${stat.mtimeMs} ${stat.size} ${stat.ino}`
    } catch {
      // Reading the file reports why.
      return 'unreadable'
    }
  }
}

/** Names may come from data, by includes: none may lead out of the directory. */
function isBelow(name: string): boolean {
  return (
    !name.includes('\0') && !name.includes('\\') && name.split('/').every(part => !/^\.{0,2}$/.test(part))
  )
}
