import { createHash } from 'node:crypto'
import type { Docs, TypeName } from './docs.js'
import { effectiveInterfaces, imageOf, type VariableLevels } from './effective.js'
import { type Field, secretMask, type Table } from './field.js'
import { kernelSignerOf } from './secure-boot.js'
import type { ClusterSettings, View } from './stored.js'
import { defaultTag } from './tags.js'
import { objectTypes } from './types.js'

/** The rights of the caller, and the settings that all answers depend on. */
export interface AnswerOptions {
  readonly cluster: ClusterSettings
  readonly masked: boolean
}

/** An object with all that its answer needs, of one moment: a long list is written later. */
export interface AnswerSource<K extends TypeName = TypeName> {
  readonly doc: Docs[K]
  readonly group: Docs['group'] | undefined
  /** The OS image in force, for a node or a group. */
  readonly image: Docs['osimage'] | undefined
  /** The last reported state of a node; null before the first. */
  readonly status: string | null
  /** More keys of a node (rules 6.8) or an OS image (rules 15.13); the same object while they are equal. */
  readonly runs: object | undefined
}

/** Collects all that `show` needs. `status` returns a node's last reported state, `runs` more keys. */
export function answerSourceOf<K extends TypeName>(
  type: K,
  doc: Docs[K],
  view: View,
  status: (node: string) => string | null,
  runs?: (node: string) => object
): AnswerSource<K> {
  const { memberOf, kernelOptions } = objectTypes[type]
  const name = memberOf?.(doc)
  const group = name === undefined ? undefined : view.get('group', name)
  const own = doc as { readonly osimage?: string; readonly osimagetag?: string }
  const { osimage = group?.osimage ?? null, osimagetag = group?.osimagetag ?? defaultTag } = own
  return {
    doc,
    group,
    image: kernelOptions && imageOf(view, { osimage, osimagetag }),
    status: memberOf ? status(doc.name) : null,
    runs: memberOf ? runs?.(doc.name) : type === 'osimage' ? packKeysOf(view, doc) : undefined
  }
}

/** Facts about the present packs of images. */
const packKeys = new Map<string, object>()
const mostPackKeys = 100

/** Returns the keys of the pack of an image; the same object while they are equal. */
function packKeysOf(view: View, image: Docs['osimage']): object {
  const _kernelsigner = kernelSignerOf(view, image) ?? null
  const _rehearsed = view.get('pack', image.imagefile ?? '')?.rehearsed ?? null
  const key = `${_kernelsigner} ${_rehearsed}`
  const keys = packKeys.get(key) ?? { _kernelsigner, _rehearsed }
  if (packKeys.size >= mostPackKeys) packKeys.clear()
  packKeys.set(key, keys)
  return keys
}

/** Returns an object as answers show it: values in force, their sources, `_override` (rules 1.4, 3.4). */
export function show<K extends TypeName>(
  type: K,
  { doc, group, image, status, runs }: AnswerSource<K>,
  { cluster, masked }: AnswerOptions
): Record<string, unknown> {
  const { fields, interfaces, effectiveValues, kernelOptions, omittedFields, shownInternals } =
    objectTypes[type]
  const inherited = effectiveValues?.(doc, group, cluster)
  const values: Readonly<Record<string, unknown>> = {
    ...doc,
    ...inherited?.settings,
    ...inherited?.derived,
    status
  }
  const shown: Record<string, unknown> = { name: doc.name }
  const put = ({ name, secret, default: byDefault }: Field) => {
    const value = values[name] ?? null
    shown[name] = value === null ? (byDefault ?? null) : secret && masked ? secretMask : value
  }
  // Lists come first: luna's client loops forever on a list of objects that follows an object (rules 2.17).
  const isObject = ({ type: { json } }: Field) => json === 'object'
  for (const field of fields) if (!isObject(field)) put(field)
  if (interfaces) shown.interfaces = showInterfaces(interfaces, doc, group)
  for (const field of fields) if (isObject(field)) put(field)
  for (const name of omittedFields?.(doc) ?? []) delete shown[name]
  for (const name of shownInternals ?? []) shown[`_${name}`] = values[name] ?? null
  if (!inherited) return Object.assign(shown, runs)
  const sources: Readonly<Record<string, string | VariableLevels>> = inherited.sources
  const isOwn = (source: string | VariableLevels): boolean =>
    typeof source === 'string' ? source === type : Object.values(source).some(isOwn)
  shown._override = Object.values(sources).some(isOwn)
  for (const { name } of fields) if (sources[name] !== undefined) shown[`_${name}_source`] = sources[name]
  if (kernelOptions) {
    const { text, source } = kernelOptions(doc, group, image)
    Object.assign(shown, { _kerneloptions: text, _kerneloptions_source: source })
  }
  return Object.assign(shown, runs)
}

/** Returns the interfaces of a group, or of a node in `group`, with the fields of `table`. */
export function showInterfaces(
  table: Table,
  doc: object,
  group: Docs['group'] | undefined
): Record<string, unknown>[] {
  return effectiveInterfaces(doc, group).map((values: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(table.map(({ name, default: byDefault }) => [name, values[name] ?? byDefault ?? null]))
  )
}

/** A cached answer text, with all that it was made from. */
interface Text extends Omit<AnswerSource, 'doc'>, AnswerOptions {
  readonly text: string
}
let texts = new WeakMap<object, Text>()
let kept = 0
/** Characters of a text, and of all since they were last forgotten. */
const longestKept = 8192
const mostKept = 32 * 1024 * 1024

/** Returns `show` as JSON text, cached until its sources are replaced, or too many others are cached. */
export function showText<K extends TypeName>(type: K, seen: AnswerSource<K>, reader: AnswerOptions): string {
  const { doc, group, image, status, runs } = seen
  const { cluster, masked } = reader
  const found = texts.get(doc)
  if (
    found !== undefined &&
    found.group === group &&
    found.image === image &&
    found.status === status &&
    found.runs === runs &&
    found.cluster === cluster &&
    found.masked === masked
  )
    return found.text
  const text = JSON.stringify(show(type, seen, reader))
  // Long texts hold scripts, of which each member of a group would cache a copy.
  if (text.length > longestKept) return text
  kept += text.length
  if (kept > mostKept) {
    texts = new WeakMap()
    kept = text.length
  }
  texts.set(doc, { group, image, status, runs, cluster, masked, text })
  return text
}

/** A cached digest, with all that it was made from. */
interface State extends Omit<AnswerSource, 'doc' | 'status' | 'runs'>, AnswerOptions {
  readonly digest: string
}
const states = new WeakMap<object, State>()

/** Returns a digest of what `show` says of the configuration: all but what the node reported (rules 2.21). */
export function showState<K extends TypeName>(
  type: K,
  { doc, group, image }: AnswerSource<K>,
  { cluster, masked }: AnswerOptions
): string {
  const found = states.get(doc)
  const isSame = found?.group === group && found?.image === image && found?.masked === masked
  if (found && isSame && found.cluster === cluster) return found.digest
  const shown = show(type, { doc, group, image, status: null, runs: undefined }, { cluster, masked })
  const digest = createHash('sha256').update(JSON.stringify(shown)).digest('base64url')
  states.set(doc, { group, image, cluster, masked, digest })
  return digest
}
