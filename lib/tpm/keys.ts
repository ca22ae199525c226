import {
  constants,
  createCipheriv,
  createECDH,
  createHmac,
  createPublicKey,
  hash,
  type JsonWebKey,
  type KeyObject,
  publicEncrypt,
  randomBytes
} from 'node:crypto'
import { Cursor, ECDSA, hex, NONE, RSASSA, SHA256, TpmError } from './cursor.js'

const LONGEST = 1024
const RSA = 0x0001
const ECC = 0x0023
const AES = 0x0006
const CFB = 0x0043
const NAME_HASHES: Readonly<Record<number, string>> = { [SHA256]: 'sha256', 12: 'sha384' }
const CURVES: Readonly<Record<number, readonly [jwk: string, node: string, bytes: number]>> = {
  3: ['P-256', 'prime256v1', 32],
  4: ['P-384', 'secp384r1', 48]
}
/** Attributes of a key (TPMA_OBJECT). Its TPM made it, and it never leaves it. */
const STAYS = (1 << 1) | (1 << 4) | (1 << 5)
const RESTRICTED = 1 << 16
const DECRYPT = 1 << 17
const SIGN = 1 << 18

/** The public area of a key in a TPM. */
export interface TpmPublic {
  readonly kind: 'rsa' | 'ecc'
  /** The TPM's name of the key: the number of its hash algorithm, and the digest of its public area. */
  readonly name: Buffer
  /** Hash algorithm of the name, as node:crypto calls it: `sha256` or `sha384`. */
  readonly nameHash: string
  readonly key: KeyObject
  /** SHA-256 in hex of the DER SubjectPublicKeyInfo: what `tpm_sha256` of a node holds. */
  readonly spkiSha256: string
  /** A key of one TPM that signs its own words alone (restricted), by RSASSA or ECDSA with SHA-256. */
  readonly isAttestationKey: boolean
  /** A key of one TPM that decrypts its own structures alone (restricted), with AES in CFB mode. */
  readonly isEndorsementKey: boolean
  /** Bits of the AES key that guards what is sent to this key; 0 for a key that signs. */
  readonly aesBits: number
  /** Of an ECC key: its curve as node:crypto calls it, and the coordinates, padded. */
  readonly point?: { readonly curve: string; readonly x: Buffer; readonly y: Buffer }
}

/**
 * Reads a TPM2B_PUBLIC, as `tpm2_createek -f tss -u` and `tpm2_readpublic -f tss -o` write it: RSA of 2048,
 * 3072 or 4096 bits, or a point of P-256 or P-384.
 *
 * An attestation key that is the same in each boot, with no room in the TPM, is made by
 * `tpm2_createprimary -C e -g sha256 -G ecc256:ecdsa-sha256:null -c ak.ctx
 * -a 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign'`
 * (or with `-G rsa2048:rsassa-sha256:null`).
 * @throws TpmError for all else (rules 15.11).
 */
export function parsePublic(bytes: Buffer): TpmPublic {
  const outer = new Cursor('public area', bytes, LONGEST)
  const area = outer.sized('its size', LONGEST)
  outer.end()
  const cursor = new Cursor('public area', area, LONGEST)
  const type = cursor.u16('type')
  if (type !== RSA && type !== ECC) throw cursor.wrong('type', `is ${hex(type)}, neither RSA nor ECC`)
  const nameAlg = cursor.u16('name algorithm')
  const nameHash = NAME_HASHES[nameAlg]
  if (!nameHash) throw cursor.wrong('name algorithm', `is ${hex(nameAlg)}`)
  const attributes = cursor.u32('attributes')
  const has = (all: number, none: number) => (attributes & all) === all && (attributes & none) === 0
  cursor.sized('policy', 64)
  const aesBits = readSymmetric(cursor)
  const [scheme, schemeHash] = readScheme(cursor)
  const { jwk, point } = type === RSA ? readRsa(cursor) : readPoint(cursor)
  cursor.end()
  const key = imported(jwk)
  const isSigning = scheme === (type === RSA ? RSASSA : ECDSA) && schemeHash === SHA256 && nameAlg === SHA256
  return {
    kind: type === RSA ? 'rsa' : 'ecc',
    name: Buffer.concat([area.subarray(2, 4), hash(nameHash, area, 'buffer')]),
    nameHash,
    key,
    spkiSha256: hash('sha256', key.export({ type: 'spki', format: 'der' })),
    isAttestationKey: has(STAYS | RESTRICTED | SIGN, DECRYPT) && aesBits === 0 && isSigning,
    isEndorsementKey: has(STAYS | RESTRICTED | DECRYPT, SIGN) && aesBits > 0 && scheme === NONE,
    aesBits,
    ...(point && { point })
  }
}

/** Bits of the AES key, 0 for none. */
function readSymmetric(cursor: Cursor): number {
  const algorithm = cursor.u16('symmetric algorithm')
  if (algorithm === NONE) return 0
  cursor.expect(AES, algorithm, 'symmetric algorithm', 'AES')
  const bits = cursor.u16('symmetric key')
  if (bits !== 128 && bits !== 256) throw cursor.wrong('symmetric key', `has ${bits} bits`)
  cursor.expect(CFB, cursor.u16('symmetric mode'), 'symmetric mode', 'CFB')
  return bits
}

/** The signature scheme, and its hash. */
function readScheme(cursor: Cursor): readonly [scheme: number, hash?: number] {
  const scheme = cursor.u16('scheme')
  if (scheme === NONE) return [scheme]
  if (scheme !== RSASSA && scheme !== ECDSA)
    throw cursor.wrong('scheme', `is ${hex(scheme)}, neither RSASSA nor ECDSA`)
  return [scheme, cursor.u16('hash of the scheme')]
}

interface Unique {
  readonly jwk: JsonWebKey
  readonly point?: TpmPublic['point']
}

function readRsa(cursor: Cursor): Unique {
  const bits = cursor.u16('size of the key')
  if (![2048, 3072, 4096].includes(bits)) throw cursor.wrong('size of the key', `is ${bits} bits`)
  // 0 stands for the usual one.
  const exponent = cursor.u32('exponent') || 65537
  if (exponent < 65537 || exponent % 2 === 0) throw cursor.wrong('exponent', `is ${exponent}`)
  const n = cursor.sized('modulus', bits / 8)
  const isWhole = n.length === bits / 8 && n.readUInt8() >= 0x80 && n.readUInt8(n.length - 1) % 2 === 1
  if (!isWhole) throw cursor.wrong('modulus', `is not that of an RSA key of ${bits} bits`)
  const e = Buffer.from(exponent.toString(16).padStart(8, '0').replace(/^00/, ''), 'hex')
  return { jwk: { kty: 'RSA', n: n.toString('base64url'), e: e.toString('base64url') } }
}

function readPoint(cursor: Cursor): Unique {
  const id = cursor.u16('curve')
  const [crv, curve, bytes] = CURVES[id] ?? []
  if (!crv || !curve || !bytes) throw cursor.wrong('curve', `is ${hex(id)}, neither P-256 nor P-384`)
  cursor.expect(NONE, cursor.u16('key derivation'), 'key derivation', 'none')
  const [x, y] = [padded(cursor.sized('x', bytes), bytes), padded(cursor.sized('y', bytes), bytes)]
  const jwk = { kty: 'EC', crv, x: x.toString('base64url'), y: y.toString('base64url') }
  return { jwk, point: { curve, x, y } }
}

/** Returns a number with the zeros before it that some TPMs leave out. */
export const padded = (number: Buffer, bytes: number): Buffer =>
  Buffer.concat([Buffer.alloc(bytes - number.length), number])

function imported(jwk: JsonWebKey): KeyObject {
  try {
    return createPublicKey({ key: jwk, format: 'jwk' })
  } catch {
    throw new TpmError('public area', 'key', 'is no point of its curve')
  }
}

/** The head of a credential's file: its magic number and version. */
const HEAD = Buffer.from('badcc0de00000001', 'hex')
const LABEL = Buffer.from('IDENTITY\0')

/**
 * Makes a credential as TPM2_MakeCredential does: only the TPM with this endorsement key opens it, and only
 * while it holds the key named `akName`. Returns the file that `tpm2_activatecredential -i` reads.
 * @param secret at most as many bytes as a digest of the key's name has; 32 always fit.
 * @throws TpmError when the key is no endorsement key, or the secret does not fit.
 */
export function makeCredential(ek: TpmPublic, akName: Buffer, secret: Buffer): Buffer {
  if (!ek.isEndorsementKey)
    throw new TpmError('public area', 'of the endorsement key', 'is not that of a restricted key of one TPM')
  // A name is the number of its algorithm and a digest.
  const bytes = ek.name.length - 2
  if (secret.length > bytes)
    throw new TpmError('credential', 'secret', `has ${secret.length} bytes; the most are ${bytes}`)
  const [seed, encrypted] = ek.point ? seedByPoint(ek.nameHash, ek.point) : seedByRsa(ek, bytes)
  const aesKey = kdfA(ek.nameHash, seed, 'STORAGE', akName, ek.aesBits)
  const cipher = createCipheriv(`aes-${ek.aesBits}-cfb`, aesKey, Buffer.alloc(16))
  const identity = Buffer.concat([cipher.update(sized(secret)), cipher.final()])
  const hmacKey = kdfA(ek.nameHash, seed, 'INTEGRITY', Buffer.alloc(0), 8 * bytes)
  const integrity = createHmac(ek.nameHash, hmacKey).update(identity).update(akName).digest()
  return Buffer.concat([HEAD, sized(Buffer.concat([sized(integrity), identity])), sized(encrypted)])
}

/** A TPM2B: bytes behind their number. */
const sized = (bytes: Buffer) => Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes])

/** A seed, and what gives it to this key alone. */
type Seed = readonly [seed: Buffer, encrypted: Buffer]

function seedByRsa({ key, nameHash: oaepHash }: TpmPublic, bytes: number): Seed {
  const seed = randomBytes(bytes)
  const padding = constants.RSA_PKCS1_OAEP_PADDING
  return [seed, publicEncrypt({ key, padding, oaepHash, oaepLabel: LABEL }, seed)]
}

/** KDFe of TPM 2.0 part 1: its first round gives a digest, as long as a seed. */
function seedByPoint(nameHash: string, { curve, x, y }: NonNullable<TpmPublic['point']>): Seed {
  const own = createECDH(curve)
  const point = own.generateKeys()
  const [ownX, ownY] = [point.subarray(1, 1 + x.length), point.subarray(1 + x.length)]
  const shared = own.computeSecret(Buffer.concat([Buffer.from([4]), x, y]))
  const seed = hash(nameHash, Buffer.concat([number(1), shared, LABEL, ownX, x]), 'buffer')
  return [seed, Buffer.concat([sized(ownX), sized(ownY)])]
}

/** KDFa of TPM 2.0 part 1: its first round gives a digest, of which a key is the beginning. */
function kdfA(nameHash: string, seed: Buffer, label: string, context: Buffer, bits: number): Buffer {
  const text = [number(1), Buffer.from(`${label}\0`), context, number(bits)]
  const digest = createHmac(nameHash, seed).update(Buffer.concat(text)).digest()
  return digest.subarray(0, bits / 8)
}

const number = (value: number) => Buffer.from([0, 0, value >> 8, value & 255])
