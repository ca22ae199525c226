import { existsSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { FILE_HEADERS_ONLY, formatPatch, structuredPatch } from 'diff'
import { runInThread } from '../base/thread.js'
import { readRegularFileSync } from '../disk/file.js'
import { TemplateError, Templates } from '../template/templates.js'
import type { Render, Rendered, RenderedFile, ServiceSettings } from './backend.js'
import { backendOf, type ServiceName } from './backends.js'
import { type Serials, serials, type ZonesFound, type ZonesJob } from './dns/serials.js'
import { isLeft, leftPaths, stagedPath } from './swap.js'

/** Input of a rendering: plain data, as it goes to another thread. */
export interface RenderJob {
  readonly service: ServiceName
  readonly settings: ServiceSettings
  readonly templates: string
  /** The data of the service: parts of a JSON text. */
  readonly data: readonly string[]
  readonly serials: Serials
  /** Only where controllers share the objects. */
  readonly zones?: ZonesJob
  readonly nowMs: number
  /** Return files with their diffs: all of them, or only those that differ, without their texts. */
  readonly preview: false | 'whole' | 'differing'
}

/** Difference between the rendered files and those in force. */
export interface Difference {
  readonly changed: readonly RenderedFile[]
  /** Paths of svcd's files that are no longer rendered. */
  readonly removed: readonly string[]
  /** Paths of files that are not svcd's and would be replaced. */
  readonly foreign: readonly string[]
  /** Paths of rejected files, and of files that a killed daemon left. */
  readonly left: readonly string[]
  readonly serials: Serials
  /** How zones compare with the serials that controllers share. */
  readonly zones: ZonesFound
}

export type RenderOutcome =
  | { readonly kind: 'difference'; readonly difference: Difference }
  /** JSON of a list of path, text and diff. */
  | { readonly kind: 'preview'; readonly files: string }
  | { readonly kind: 'failed'; readonly message: string }

/** Runs `renderJob` in a thread, so that the event loop goes on; `signal` ends it. */
export const renderInThread = (job: RenderJob, signal: AbortSignal): Promise<RenderOutcome> =>
  runInThread(new URL('./render-worker.js', import.meta.url), job, { name: 'the rendering', signal })

/** Renders, and compares with the files in force. It takes seconds for 10,000 machines. */
export function renderJob(job: RenderJob): RenderOutcome {
  try {
    const { rendered, given, found: zones } = render(job)
    const unmarked = rendered.files.find(({ text }) => !isOurs(text))
    if (unmarked)
      return {
        kind: 'failed',
        message: `the template of ${unmarked.path} must have "${mark}" in its first line`
      }
    const removed = surplus(rendered)
    if (job.preview) {
      const all = preview(job, rendered, removed)
      const differing = all.filter(({ diff }) => diff !== '').map(({ path, diff }) => ({ path, diff }))
      return { kind: 'preview', files: JSON.stringify(job.preview === 'whole' ? all : differing) }
    }
    const foreign: string[] = []
    const changed = rendered.files.filter(({ path, text }) => {
      const inForce = contentOf(path)
      if (inForce !== undefined && !isOurs(inForce)) foreign.push(path)
      return inForce !== text
    })
    const left = leftovers(job, rendered)
    return { kind: 'difference', difference: { changed, removed, foreign, left, serials: given, zones } }
  } catch (error) {
    if (error instanceof TemplateError) return { kind: 'failed', message: `template ${error.message}` }
    throw error
  }
}

function render(job: RenderJob): { rendered: Rendered; given: Serials; found: ZonesFound } {
  const templates = new Templates({ directory: job.templates })
  const backend = backendOf(job.service, job.settings.server)
  const { of, given, found } = serials(job.serials, job.nowMs, contentOf, job.zones)
  const all = JSON.parse(job.data.join(''))
  const text: Render = (name, data) => templates.render(name, { variables: all.variables, ...data })
  return { rendered: backend.render(all, job.settings, text, of), given, found }
}

/** Mark in the first line of svcd's own files: their directory may hold an admin's files too. */
const mark = 'Written by svcd'
const isOurs = (text: string) => text.slice(0, text.indexOf('\n') + 1 || text.length).includes(mark)

function surplus({ files, owned = [] }: Rendered): string[] {
  const kept = new Set(files.map(({ path }) => path))
  return owned.flatMap(({ directory, suffix }) =>
    listOf(directory)
      .filter(name => name.endsWith(suffix) && !name.startsWith('.'))
      .map(name => join(directory, name))
      .filter(path => !kept.has(path) && isOurs(contentOf(path) ?? ''))
  )
}

/** Returns staged, rejected and old files of all files that are, were or might be rendered. */
function leftovers({ service, settings }: RenderJob, { files, owned = [] }: Rendered): string[] {
  const directories = new Set(owned.map(({ directory }) => directory))
  const checks = backendOf(service, settings.server).checks(settings, files, stagedPath)
  const single = [...files, ...(checks.files ?? [])]
    .map(({ path }) => path)
    .filter(path => !directories.has(dirname(path)))
  return [
    ...single.flatMap(leftPaths).filter(path => existsSync(path)),
    ...owned.flatMap(({ directory, suffix }) =>
      listOf(directory)
        .filter(name => isLeft(name, suffix))
        .map(name => join(directory, name))
        .filter(path => isOurs(contentOf(path) ?? ''))
    )
  ]
}

/** Returns all files: `text` is '' for one that would be removed, `diff` for one that differs in a secret. */
function preview({ service, settings }: RenderJob, { files }: Rendered, removed: readonly string[]) {
  const { masked = text => text } = backendOf(service, settings.server)
  const shown = (text: string | undefined) => (text === undefined ? undefined : masked(text))
  const gone = removed.map(path => ({ path, text: undefined }))
  return [...files, ...gone].map(({ path, text }) => ({
    path,
    text: shown(text) ?? '',
    diff: unifiedDiff(path, shown(contentOf(path)), shown(text))
  }))
}

function contentOf(path: string): string | undefined {
  return unlessMissing(() => readRegularFileSync(path).toString(), undefined)
}

const listOf = (directory: string) =>
  unlessMissing(() => readdirSync(directory, { withFileTypes: true }), [])
    .filter(entry => !entry.isDirectory())
    .map(({ name }) => name)

function unlessMissing<T>(read: () => T, otherwise: T): T {
  try {
    return read()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return otherwise
    throw error
  }
}

/** Beyond so many edits a diff replaces the whole text, which is right, if not the shortest. */
const mostEdits = 1000

/** Returns a unified diff as diff(1) writes it, '' for equal texts. Undefined stands for no file. */
export function unifiedDiff(path: string, before: string | undefined, after: string | undefined): string {
  if (before === after) return ''
  const [old, now] = [before ?? '', after ?? '']
  const between = (from: string, to: string, options = {}) =>
    structuredPatch(path, path, from, to, undefined, undefined, { context: 3, ...options })
  let patch = between(old, now, old && now ? { maxEditLength: mostEdits } : {})
  if (!patch) {
    const hunks = [...between(old, '').hunks, ...between('', now).hunks]
    const [oldLines, newLines] = [hunks[0]?.oldLines ?? 0, hunks[1]?.newLines ?? 0]
    const lines = hunks.flatMap(hunk => hunk.lines)
    patch = { ...between('', ''), hunks: [{ oldStart: 1, oldLines, newStart: 1, newLines, lines }] }
  }
  const title = (text: string | undefined) => (text === undefined ? '/dev/null' : path)
  const text = formatPatch(
    { ...patch, oldFileName: title(before), newFileName: title(after) },
    FILE_HEADERS_ONLY
  )
  // diff(1) omits a count of one. No line of the texts begins with @@, as each has its sign before it.
  return text.replace(/^@@ .*/gm, header => header.replaceAll(/,1(?= )/g, ''))
}
