import { createHash, createPublicKey, type JsonWebKey, type KeyObject } from 'node:crypto'
import { Cursor, HASHES, hex, NONE, SHA256, TpmError } from './cursor.js'

/** Bytes of the longest public area that is read. */
const LONGEST = 1024
const RSA = 0x0001
const ECC = 0x0023
const AES = 0x0006
const CFB = 0x0043
const RSASSA = 0x0014
const ECDSA = 0x0018
/** Schemes that are followed by a hash algorithm: RSAES is followed by nothing, ECDAA by a counter too. */
const SCHEMES = [
  RSASSA,
  0x0016,
  0x0017,
  ECDSA,
  0x0019,
  0x001a,
  0x001b,
  0x001c,
  0x0020,
  0x0021,
  0x0022,
  0x0007
]
const RSAES = 0x0015
const ECDAA = 0x001a
const KEY_BITS: readonly number[] = [2048, 3072, 4096]
const CURVES: ReadonlyMap<number, { readonly jwk: string; readonly node: string; readonly size: number }> =
  new Map([
    [0x0003, { jwk: 'P-256', node: 'prime256v1', size: 32 }],
    [0x0004, { jwk: 'P-384', node: 'secp384r1', size: 48 }]
  ])

/** The attributes that a TPM gives a key: bits of TPMA_OBJECT. */
const ATTRIBUTES = {
  fixedTpm: 1 << 1,
  fixedParent: 1 << 4,
  sensitiveDataOrigin: 1 << 5,
  userWithAuth: 1 << 6,
  adminWithPolicy: 1 << 7,
  restricted: 1 << 16,
  decrypt: 1 << 17,
  sign: 1 << 18
} as const

/** The public area of a key in a TPM, read from a TPM2B_PUBLIC. */
export interface TpmPublic {
  readonly kind: 'rsa' | 'ecc'
  /** The TPM's name of the key: the number of its hash algorithm, and the digest of its public area. */
  readonly name: Buffer
  /** Hash algorithm of the name, as node:crypto calls it: `sha256`, `sha384`. */
  readonly nameHash: string
  readonly attributes: Readonly<Record<keyof typeof ATTRIBUTES, boolean>>
  readonly key: KeyObject
  /** SHA-256 in hex of the DER SubjectPublicKeyInfo: what `tpm_sha256` of a node holds. */
  readonly spkiSha256: string
  /** A restricted signing key that never leaves its TPM, with RSASSA or ECDSA and SHA-256. */
  readonly isAttestationKey: boolean
  /** A restricted decryption key that never leaves its TPM, with AES in CFB mode. */
  readonly isEndorsementKey: boolean
  /** Bits of the AES key that guards what is sent to this key; 0 for a key that signs. */
  readonly aesBits: number
  /** Of an ECC key: its curve as node:crypto calls it, the bytes of a coordinate, and the point's x. */
  readonly point?: { readonly curve: string; readonly size: number; readonly x: Buffer }
}

/** The name of a public area without its length (TPMT_PUBLIC), whose hash algorithm is `nameAlg`. */
export function nameOf(area: Buffer, nameAlg: number): Buffer {
  const hash = HASHES.get(nameAlg)
  if (!hash || hash.size < 32) throw new TpmError('public area', 'name algorithm', `is ${hex(nameAlg)}`)
  const number = Buffer.from([nameAlg >> 8, nameAlg & 0xff])
  return Buffer.concat([number, createHash(hash.name).update(area).digest()])
}

/**
 * Reads a TPM2B_PUBLIC, as `tpm2_readpublic -f tss -o` and `tpm2_createek -f tss -u` write it: RSA of 2048,
 * 3072 or 4096 bits, or a point of P-256 or P-384.
 *
 * An attestation key that a TPM makes anew in each boot, always the same one, is made by
 * `tpm2_createprimary -C e -g sha256 -G ecc256:ecdsa-sha256:null
 * -a 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign' -c ak.ctx`
 * (or `-G rsa2048:rsassa-sha256:null`).
 * @throws TpmError for all else (rules 15.11).
 */
export function parsePublic(bytes: Buffer): TpmPublic {
  if (bytes.length > LONGEST)
    throw new TpmError('public area', 'its size', `is ${bytes.length} bytes; the most are ${LONGEST}`)
  const outer = new Cursor('public area', bytes)
  const area = outer.sized('its size', LONGEST)
  outer.end()
  const cursor = new Cursor('public area', area)
  const type = cursor.u16('type')
  if (type !== RSA && type !== ECC)
    throw cursor.wrong('type', `is ${hex(type)}, which is neither RSA nor ECC`)
  const nameAlg = cursor.u16('name algorithm')
  const name = nameOf(area, nameAlg)
  const bits = cursor.u32('attributes')
  cursor.sized('policy', 64)
  const aesBits = readSymmetric(cursor)
  const scheme = readScheme(cursor, 'scheme')
  const { point, ...unique } = type === RSA ? readRsa(cursor) : readPoint(cursor)
  cursor.end()
  const key = imported(unique.jwk)
  const spki = key.export({ type: 'spki', format: 'der' })
  const has = (attribute: keyof typeof ATTRIBUTES) => (bits & ATTRIBUTES[attribute]) !== 0
  const stays = has('fixedTpm') && has('fixedParent') && has('sensitiveDataOrigin') && has('restricted')
  const isSigning =
    scheme.algorithm === (type === RSA ? RSASSA : ECDSA) && scheme.hash === SHA256 && nameAlg === SHA256
  const attributes = Object.fromEntries(
    Object.entries(ATTRIBUTES).map(([name, bit]) => [name, (bits & bit) !== 0])
  )
  return {
    kind: type === RSA ? 'rsa' : 'ecc',
    name,
    nameHash: (HASHES.get(nameAlg) as { name: string }).name,
    attributes: attributes as TpmPublic['attributes'],
    key,
    spkiSha256: createHash('sha256').update(spki).digest('hex'),
    isAttestationKey: stays && has('sign') && !has('decrypt') && aesBits === 0 && isSigning,
    isEndorsementKey: stays && has('decrypt') && !has('sign') && aesBits > 0 && scheme.algorithm === NONE,
    aesBits,
    ...(point && { point })
  }
}

/** Bits of the AES key, 0 for none. */
function readSymmetric(cursor: Cursor): number {
  const algorithm = cursor.u16('symmetric algorithm')
  if (algorithm === NONE) return 0
  if (algorithm !== AES) throw cursor.wrong('symmetric algorithm', `is ${hex(algorithm)}, which is not AES`)
  const bits = cursor.u16('symmetric key')
  if (bits !== 128 && bits !== 256) throw cursor.wrong('symmetric key', `has ${bits} bits`)
  const mode = cursor.u16('symmetric mode')
  if (mode !== CFB) throw cursor.wrong('symmetric mode', `is ${hex(mode)}, which is not CFB`)
  return bits
}

function readScheme(cursor: Cursor, field: string): { readonly algorithm: number; readonly hash?: number } {
  const algorithm = cursor.u16(field)
  if (algorithm === NONE || algorithm === RSAES) return { algorithm }
  if (!SCHEMES.includes(algorithm)) throw cursor.wrong(field, `is ${hex(algorithm)}, which is not known`)
  const hash = cursor.u16(`hash of the ${field}`)
  if (algorithm === ECDAA) cursor.u16('counter of the scheme')
  return { algorithm, hash }
}

interface Unique {
  readonly jwk: JsonWebKey
  readonly point?: TpmPublic['point']
}

function readRsa(cursor: Cursor): Unique {
  const bits = cursor.u16('size of the key')
  if (!KEY_BITS.includes(bits)) throw cursor.wrong('size of the key', `is ${bits} bits`)
  // 0 stands for the usual one.
  const exponent = cursor.u32('exponent') || 65537
  if (exponent < 65537 || exponent % 2 === 0) throw cursor.wrong('exponent', `is ${exponent}`)
  const modulus = cursor.sized('modulus', bits / 8)
  if (
    modulus.length !== bits / 8 ||
    modulus.readUInt8() < 0x80 ||
    modulus.readUInt8(modulus.length - 1) % 2 === 0
  )
    throw cursor.wrong('modulus', `is not that of an RSA key of ${bits} bits`)
  const e = Buffer.alloc(4)
  e.writeUInt32BE(exponent)
  const start = e.findIndex(byte => byte !== 0)
  return { jwk: { kty: 'RSA', n: modulus.toString('base64url'), e: e.subarray(start).toString('base64url') } }
}

function readPoint(cursor: Cursor): Unique {
  const id = cursor.u16('curve')
  const curve = CURVES.get(id)
  if (!curve) throw cursor.wrong('curve', `is ${hex(id)}, which is neither P-256 nor P-384`)
  readScheme(cursor, 'key derivation')
  const coordinate = (field: string) => padded(cursor.sized(field, curve.size), curve.size)
  const [x, y] = [coordinate('x'), coordinate('y')]
  const jwk = { kty: 'EC', crv: curve.jwk, x: x.toString('base64url'), y: y.toString('base64url') }
  return { jwk, point: { curve: curve.node, size: curve.size, x } }
}

/** A number with zeros before it, which some TPMs leave out. */
export const padded = (number: Buffer, size: number): Buffer =>
  Buffer.concat([Buffer.alloc(size - number.length), number])

function imported(jwk: JsonWebKey): KeyObject {
  try {
    return createPublicKey({ key: jwk, format: 'jwk' })
  } catch {
    throw new TpmError('public area', 'key', 'is no point of its curve')
  }
}
