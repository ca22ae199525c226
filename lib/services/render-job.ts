import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { TemplateError, Templates } from '../template/templates.js'
import type { Rendered, RenderedFile, ServiceSettings } from './backend.js'
import { backendOf, type ServiceName } from './backends.js'
import { unifiedDiff } from './diff.js'
import { type Serials, serials } from './dns/serials.js'

/** What a rendering is made from. Plain: it goes to another thread. */
export interface RenderJob {
  readonly service: ServiceName
  readonly settings: ServiceSettings
  /** Directory of the templates. */
  readonly templates: string
  /** DhcpData or DnsData, as JSON. */
  readonly data: string
  readonly serials: Serials
  readonly nowMs: number
  readonly preview: boolean
}

/** How what was rendered differs from the files in force. */
export interface Difference {
  readonly changed: readonly RenderedFile[]
  /** Paths of files that nothing is rendered to any more. */
  readonly removed: readonly string[]
  readonly serials: Serials
}

/** One file of a preview; `text` is '' for one that would go. */
export interface PreviewFile {
  readonly path: string
  readonly text: string
  readonly diff: string
}

export type RenderOutcome =
  | { readonly kind: 'difference'; readonly difference: Difference }
  /** JSON of a list of PreviewFile. */
  | { readonly kind: 'preview'; readonly files: string }
  /** A template that is not right; the message names it. */
  | { readonly kind: 'failed'; readonly message: string }

/** Renders, and compares with the files there are. Takes its time: seconds for 10,000 machines. */
export function renderJob(job: RenderJob): RenderOutcome {
  try {
    const { rendered, given } = render(job)
    const removed = surplus(rendered)
    if (job.preview) return { kind: 'preview', files: JSON.stringify(preview(rendered, removed)) }
    const changed = rendered.files.filter(({ path, text }) => contentOf(path) !== text)
    return { kind: 'difference', difference: { changed, removed, serials: given } }
  } catch (error) {
    if (error instanceof TemplateError) return { kind: 'failed', message: `template ${error.message}` }
    throw error
  }
}

function render(job: RenderJob): { rendered: Rendered; given: Serials } {
  const templates = new Templates({ directory: job.templates })
  const backend = backendOf(job.service, job.settings.server)
  const { of, given } = serials(job.serials, job.nowMs, contentOf)
  const text = (name: string, data: object) => templates.render(name, { ...data })
  return { rendered: backend.render(JSON.parse(job.data), job.settings, text, of), given }
}

function surplus({ files, owned }: Rendered): string[] {
  const kept = new Set(files.map(({ path }) => path))
  return owned.flatMap(({ directory, suffix }) =>
    listOf(directory)
      .filter(name => name.endsWith(suffix) && !name.startsWith('.'))
      .map(name => join(directory, name))
      .filter(path => !kept.has(path))
  )
}

function preview({ files }: Rendered, removed: readonly string[]): PreviewFile[] {
  return [
    ...files.map(({ path, text }) => ({ path, text, diff: unifiedDiff(path, contentOf(path), text) })),
    ...removed.map(path => ({ path, text: '', diff: unifiedDiff(path, contentOf(path), undefined) }))
  ]
}

/** undefined where there is no file. */
function contentOf(path: string): string | undefined {
  return unlessMissing(() => readFileSync(path, 'utf8'), undefined)
}

const listOf = (directory: string) => unlessMissing(() => readdirSync(directory), [])

function unlessMissing<T>(read: () => T, otherwise: T): T {
  try {
    return read()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return otherwise
    throw error
  }
}
