import { badRequest } from '../../errors.js'
import { isObject, type JsonValue } from '../../json.js'
import { isObjectName } from '../../model/names.js'
import type { KernelWish } from '../kernel.js'

/** Where the controller that writes asks for work on a directory that is on another one. */
export const ERRANDS = '/errands'

/** Work on the directory of an image, as the controller that has the directory is told of it. `check`: only whether it can begin. */
export type Task =
  | { readonly kind: 'pack'; readonly osimage: string; readonly wish: KernelWish; readonly check: boolean }
  | ({
      readonly kind: 'push'
      readonly osimage: string
      readonly dryrun: boolean
      readonly check: boolean
    } & To)
  /** Of the directory `tree` that svcd made for an image, which is deleted. */
  | { readonly kind: 'removal'; readonly osimage: string; readonly tree: string; readonly check: false }

/** To which nodes a push goes. */
export type To = { readonly node: string } | { readonly group: string }

/** What the controller that writes asks another one for. */
export interface Errand {
  /** The `[controller] name` of who is asked. */
  readonly to: string
  /** The URL of who asks. */
  readonly writer: string
  /** The number of the last change that who asks knows: who is asked has to know it too. */
  readonly revision: number
  readonly task: Task
}

/** How an errand ended: with what came of it, or with an error and its status, where it has one. */
export type End =
  | { readonly done: JsonValue }
  | { readonly failed: { readonly message: string; readonly status?: number } }

/** What is said while an errand is done: at last its end. One without anything only says that it goes on. */
export interface Message {
  readonly line?: string
  readonly progress?: number
  readonly result?: readonly [key: string, value: JsonValue]
  readonly end?: End
}

/**
 * One line of the answer to an errand: a message as JSON, and the proof of these very characters. With its number: no line can be left
 * out, put in another place or told twice.
 */
export interface Said {
  readonly said: string
  readonly proof: string
}

/** What is proved of the message with this number, the first one being 0. */
export const numbered = (number: number, said: string): string => `${number} ${said}`

/** Why work has failed, with the name of the controller where it was done: who reads it may be at another one. */
export const failedOn = (controller: string, reason: string) => `on controller ${controller}: ${reason}`

const isText = (value: unknown): value is string => typeof value === 'string'

/** Throws 400 for what is no errand of this release. */
export function errandIn(body: unknown): Errand {
  const { to, writer, revision, task } = isObject(body) ? body : {}
  if (isText(to) && isText(writer) && Number.isSafeInteger(revision)) {
    const known = taskIn(task)
    if (known) return { to, writer, revision: Number(revision), task: known }
  }
  throw badRequest('this is no work that this release knows: let all controllers have the same release')
}

function taskIn(task: unknown): Task | undefined {
  if (!isObject(task)) return undefined
  const { kind, osimage, wish, check, dryrun, node, group, tree } = task
  if (!isText(osimage) || typeof check !== 'boolean') return undefined
  if (kind === 'pack' && isWish(wish)) return { kind, osimage, wish, check }
  if (kind === 'push' && typeof dryrun === 'boolean') {
    if (isText(node)) return { kind, osimage, dryrun, check, node }
    if (isText(group)) return { kind, osimage, dryrun, check, group }
  }
  if (kind === 'removal' && isText(tree) && isObjectName(tree) && !check)
    return { kind, osimage, tree, check }
  return undefined
}

const isWish = (wish: unknown): wish is KernelWish =>
  isObject(wish) &&
  Object.entries(wish).every(
    ([key, value]) => ['kernelfile', 'initrdfile', 'kernelversion'].includes(key) && isText(value)
  )
