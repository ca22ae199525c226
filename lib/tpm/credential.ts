import {
  constants,
  createCipheriv,
  createECDH,
  createHmac,
  hash,
  publicEncrypt,
  randomBytes
} from 'node:crypto'
import { TpmError } from './cursor.js'
import type { TpmPublic } from './public.js'

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
  return createHmac(nameHash, seed)
    .update(Buffer.concat(text))
    .digest()
    .subarray(0, bits / 8)
}

const number = (value: number) => Buffer.from([0, 0, value >> 8, value & 255])
