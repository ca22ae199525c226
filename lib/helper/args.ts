import { isIP } from 'node:net'

/** Reads one argument of a command. Throws Error for another type. */
export type Read<T> = (value: unknown) => T

const LONGEST_TEXT = 4096
const MOST_TEXTS = 100_000

/** A text without a NUL character. */
export const text: Read<string> = value => {
  if (typeof value !== 'string' || value.length > LONGEST_TEXT || value.includes('\0'))
    throw new Error('must be a text')
  return value
}

/** A text of any length, whole lines of a message. */
export const longText: Read<string> = value => {
  if (typeof value !== 'string') throw new Error('must be a text')
  return value
}

/** A node's name. It becomes a word of ssh's command line. */
export const nodeName: Read<string> = value => {
  if (typeof value !== 'string' || !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(value))
    throw new Error('must be the name of a node')
  return value
}

/** An IP address. */
export const address: Read<string> = value => {
  if (typeof value !== 'string' || isIP(value) === 0) throw new Error('must be an IP address')
  return value
}

/** A list of texts. */
export const texts: Read<readonly string[]> = value => {
  if (!Array.isArray(value) || value.length > MOST_TEXTS) throw new Error('must be a list of texts')
  return value.map(text)
}

/** True or false. */
export const flag: Read<boolean> = value => {
  if (typeof value !== 'boolean') throw new Error('must be true or false')
  return value
}

/** One of these words. */
export const oneOf =
  <W extends string>(...words: readonly W[]): Read<W> =>
  value => {
    const word = words.find(word => word === value)
    if (word === undefined) throw new Error(`must be ${words.join(' or ')}`)
    return word
  }

/** The same, or nothing. */
export const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  value =>
    value === undefined || value === null ? undefined : read(value)

/** The arguments of a command, by name. */
export type Shape = Readonly<Record<string, Read<unknown>>>
export type Values<S extends Shape> = { readonly [K in keyof S]: ReturnType<S[K]> }

/** Reads all arguments of a command, none missing and none unknown. Throws Error naming the one that is wrong. */
export function readArgs<S extends Shape>(shape: S, given: unknown): Values<S> {
  if (typeof given !== 'object' || given === null) throw new Error('the arguments must be an object')
  const unknown = Object.keys(given).find(name => !Object.hasOwn(shape, name))
  if (unknown !== undefined) throw new Error(`there is no argument ${JSON.stringify(unknown)}`)
  const read = Object.entries(shape).map(([name, read]) => {
    try {
      return [name, read((given as Record<string, unknown>)[name])]
    } catch (error) {
      throw new Error(`argument ${name} ${(error as Error).message}`)
    }
  })
  return Object.fromEntries(read) as Values<S>
}
