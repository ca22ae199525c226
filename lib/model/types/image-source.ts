import { isObject } from '../../base/json.js'
import { valueType } from '../field.js'

/** The container image that the directory of an OS image was made of. */
export interface ImageSource {
  /** As it was asked for: `docker://registry.example.com/site/compute:2026.11`. */
  readonly reference: string
  /** `sha256:…` of its manifest for this platform. */
  readonly digest: string
  /** Milliseconds since 1970. */
  readonly time: number
  readonly labels: Readonly<Record<string, string>>
  /** The digests of its layers, the lowest first. */
  readonly layers: readonly string[]
}

/** Maximum layers of an image, labels that are kept, and characters of a label's name and of its text. */
export const MOST_LAYERS = 256
export const MOST_LABELS = 100
export const LONGEST_LABEL = 500
const LONGEST_REFERENCE = 1024

/** Whether a text is a digest of a registry. */
export const isDigest = (value: unknown): value is string =>
  typeof value === 'string' && /^sha256:[0-9a-f]{64}$/.test(value)

const isText = (value: unknown, longest: number) => typeof value === 'string' && value.length <= longest

/** Reads a stored `source`, which only svcd writes, or an import. */
export const imageSource = valueType<ImageSource>(
  'an object with reference, digest, time, labels and layers',
  'object',
  value => {
    const { reference, digest, time, labels, layers, ...rest } = isObject(value) ? value : {}
    const isWhole =
      Object.keys(rest).length === 0 &&
      isText(reference, LONGEST_REFERENCE) &&
      isDigest(digest) &&
      Number.isSafeInteger(time) &&
      isObject(labels) &&
      Object.keys(labels).length <= MOST_LABELS &&
      Object.entries(labels).every(pair => pair.every(text => isText(text, LONGEST_LABEL))) &&
      Array.isArray(layers) &&
      layers.length <= MOST_LAYERS &&
      layers.every(isDigest)
    return isWhole ? (value as unknown as ImageSource) : undefined
  }
)
