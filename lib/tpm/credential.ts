import {
  constants,
  createCipheriv,
  createECDH,
  createHash,
  createHmac,
  publicEncrypt,
  randomBytes
} from 'node:crypto'
import { TpmError } from './cursor.js'
import type { TpmPublic } from './public.js'

/** The head of the file that `tpm2_activatecredential -i` reads: its magic and version 1. */
const HEAD = Buffer.from('badcc0de00000001', 'hex')
const LABEL = Buffer.from('IDENTITY\0')

/**
 * Makes a credential as TPM2_MakeCredential does: only the TPM with this endorsement key opens it, and only
 * while it holds the key named `akName`. Gives the file of `tpm2_activatecredential -i`: magic, version,
 * TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET.
 * @param secret at most as many bytes as a digest of the key's name algorithm; 32 fit always.
 * @throws TpmError when the key is no endorsement key, or the secret does not fit.
 */
export function makeCredential(ek: TpmPublic, akName: Buffer, secret: Buffer): Buffer {
  if (!ek.isEndorsementKey)
    throw new TpmError(
      'endorsement key',
      'attributes',
      'are not those of a restricted decryption key of one TPM'
    )
  const size = createHash(ek.nameHash).digest().length
  if (secret.length > size)
    throw new TpmError('endorsement key', 'secret', `has ${secret.length} bytes; the most are ${size}`)
  const { seed, encrypted } = ek.point ? seedByPoint(ek, ek.point, size) : seedByRsa(ek, size)
  const none = Buffer.alloc(0)
  const aesKey = kdfA(ek.nameHash, seed, 'STORAGE', akName, ek.aesBits / 8)
  const cipher = createCipheriv(`aes-${ek.aesBits}-cfb`, aesKey, Buffer.alloc(16))
  const identity = Buffer.concat([cipher.update(sized(secret)), cipher.final()])
  const hmacKey = kdfA(ek.nameHash, seed, 'INTEGRITY', none, size)
  const integrity = createHmac(ek.nameHash, hmacKey).update(identity).update(akName).digest()
  return Buffer.concat([HEAD, sized(Buffer.concat([sized(integrity), identity])), sized(encrypted)])
}

/** A TPM2B: the bytes behind their number. */
const sized = (bytes: Buffer): Buffer =>
  Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes])

const number = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

interface Seed {
  readonly seed: Buffer
  /** The seed, for this key alone. */
  readonly encrypted: Buffer
}

function seedByRsa({ key, nameHash }: TpmPublic, size: number): Seed {
  const seed = randomBytes(size)
  const padding = constants.RSA_PKCS1_OAEP_PADDING
  return { seed, encrypted: publicEncrypt({ key, padding, oaepHash: nameHash, oaepLabel: LABEL }, seed) }
}

function seedByPoint(
  { key, nameHash }: TpmPublic,
  point: NonNullable<TpmPublic['point']>,
  size: number
): Seed {
  const { curve, size: bytes, x } = point
  const { y = '' } = key.export({ format: 'jwk' })
  const ours = createECDH(curve)
  const public_ = ours.generateKeys()
  const [ourX, ourY] = [public_.subarray(1, 1 + bytes), public_.subarray(1 + bytes)]
  const shared = ours.computeSecret(Buffer.concat([Buffer.from([4]), x, Buffer.from(y, 'base64url')]))
  // KDFe of TPM 2.0 part 1, whose one round is enough for a seed.
  const seed = createHash(nameHash)
    .update(number(1))
    .update(shared)
    .update(LABEL)
    .update(ourX)
    .update(x)
    .digest()
  return { seed: seed.subarray(0, size), encrypted: Buffer.concat([sized(ourX), sized(ourY)]) }
}

/** KDFa of TPM 2.0 part 1, whose one round gives as many bytes as a digest has. */
function kdfA(hash: string, key: Buffer, label: string, context: Buffer, bytes: number): Buffer {
  const hmac = createHmac(hash, key)
    .update(number(1))
    .update(`${label}\0`)
    .update(context)
    .update(number(bytes * 8))
  return hmac.digest().subarray(0, bytes)
}
