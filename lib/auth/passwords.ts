import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto'

/** What a guess costs: `128 * N * r` bytes of memory (16 MiB), touched `p` times. */
const cost = { N: 16384, r: 8, p: 5 }
const saltBytes = 16
const keyBytes = 32

/** Bytes of the longest password that can match: longer ones are not looked at. */
export const longestPassword = 1024

interface Parts {
  readonly N: number
  readonly r: number
  readonly p: number
  readonly salt: Buffer
  readonly key: Buffer
}

/**
 * `$scrypt$N=…,r=…,p=…$salt$key` with a fresh salt: printable ASCII without white space (rules 5.1). Takes
 * about a sixth of a second of one core and 16 MiB.
 */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltBytes)
  const key = await derive(password, { ...cost, salt }, keyBytes)
  return `$scrypt$N=${cost.N},r=${cost.r},p=${cost.p}$${salt.toString('base64url')}$${key.toString('base64url')}`
}

/** Whether `hash` was made from `password`, compared in constant time; false for what is not a hash. */
export async function verifyPassword(password: string, hash: string): Promise<boolean> {
  const parts = parse(hash)
  // To scrypt, zero bytes at the end of a password are as good as none.
  if (!parts || password.includes('\0') || Buffer.byteLength(password) > longestPassword) return false
  return timingSafeEqual(await derive(password, parts, parts.key.length), parts.key)
}

/** Whether `hashPassword` can have printed this. */
export function isPasswordHash(text: string): boolean {
  return parse(text) !== undefined
}

/** A hash that no password matches and that costs as much to check as the dearest of `hashes`. */
export function dummyHash(hashes: readonly string[]): string {
  const work = ({ N, r, p }: Pick<Parts, 'N' | 'r' | 'p'>) => N * r * p
  const dearest = hashes
    .map(parse)
    .reduce<Pick<Parts, 'N' | 'r' | 'p'> | undefined>(
      (most, parts) => (parts && (!most || work(parts) > work(most)) ? parts : most),
      undefined
    )
  const { N, r, p } = dearest ?? cost
  const random = (bytes: number) => randomBytes(bytes).toString('base64url')
  return `$scrypt$N=${N},r=${r},p=${p}$${random(saltBytes)}$${random(keyBytes)}`
}

const shape = /^\$scrypt\$N=([1-9]\d{0,6}),r=([1-9]\d?),p=([1-9]\d?)\$([\w-]{16,64})\$([\w-]{43,86})$/

function parse(hash: string): Parts | undefined {
  const [, N, r, p, salt = '', key = ''] = shape.exec(hash) ?? []
  const parts = {
    N: Number(N),
    r: Number(r),
    p: Number(p),
    salt: Buffer.from(salt, 'base64url'),
    key: Buffer.from(key, 'base64url')
  }
  // A power of two is what scrypt takes; 256 MiB is as much as one login may ever use.
  const usable = Number.isInteger(Math.log2(parts.N)) && parts.N > 1 && 128 * parts.N * parts.r <= 2 ** 28
  return usable ? parts : undefined
}

function derive(password: string, { N, r, p, salt }: Omit<Parts, 'key'>, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const maxmem = 128 * r * (N + p + 2) + 1024
    scrypt(password, salt, bytes, { N, r, p, maxmem }, (error, key) => (error ? reject(error) : resolve(key)))
  })
}

/** Roles of users (rules 5.2). */
export const roles = ['admin', 'viewer'] as const
export type Role = (typeof roles)[number]
/** Whether a word names a role. */
export const isRole = (word: string): word is Role => roles.some(role => role === word)

/** A user of `[users]`: `name = role hash`. */
export interface User {
  readonly name: string
  readonly role: Role
  /** As `svcd passwd` prints it: salted scrypt. */
  readonly hash: string
}
