import {
  createCipheriv,
  createECDH,
  createHmac,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  ECDH,
  generateKeyPairSync,
  hash,
  type KeyObject,
  randomBytes,
  sign,
  timingSafeEqual
} from 'node:crypto'

const curve = 'prime256v1'
/** The parts of a nonce in bytes; an HMAC over node, time and random bytes follows them. */
const timeBytes = 6
const randomPart = 10
const nonceLifeMs = 120_000
/** Clocks of controllers differ by a little. */
const slackMs = 5_000

/** The exchange that a K belongs to: it is never the same for another node, machine or answer. */
interface Exchange {
  readonly node: string
  readonly nonce: string
  /** SHA-256 of the EK's SubjectPublicKeyInfo, and the name of the AK, both in hex. */
  readonly ek: string
  readonly ak: string
  readonly salt: string
}

/** The keys of trust, all derived from token.key, which controllers share and backups hold (rules 15.6). */
export class TrustKeys {
  readonly #key: KeyObject
  readonly #secret: Uint8Array
  readonly #nonceKey: Uint8Array
  /** The public part of the key that signs answers, in PEM. */
  readonly pem: string
  /** SHA-256 in hex of its DER, which nodes find on their command line. */
  readonly fingerprint: string

  /** `keyFor` derives 32 bytes for a purpose. */
  constructor(keyFor: (purpose: string) => Uint8Array) {
    this.#secret = keyFor('secrets for TPMs')
    this.#nonceKey = keyFor('nonces for TPMs')
    this.#key = privateKey(keyFor)
    const spki = createPublicKey(this.#key)
    this.pem = String(spki.export({ format: 'pem', type: 'spki' }))
    this.fingerprint = hash('sha256', spki.export({ format: 'der', type: 'spki' }))
  }

  /** Returns a nonce for a node, 64 hex digits; `now`: milliseconds since 1970. Nothing is remembered. */
  nonce(node: string, now: number): string {
    const time = Buffer.alloc(timeBytes)
    time.writeUIntBE(now, 0, timeBytes)
    const given = Buffer.concat([time, randomBytes(randomPart)])
    return Buffer.concat([given, this.#proofOf(node, given)]).toString('hex')
  }

  /** Returns why a nonce is not one for this node now; undefined if it is. */
  nonceFault(node: string, nonce: string, now: number): string | undefined {
    const bytes = Buffer.from(nonce, 'hex')
    const [given, proof] = [bytes.subarray(0, timeBytes + randomPart), bytes.subarray(timeBytes + randomPart)]
    const own = this.#proofOf(node, given)
    if (bytes.length !== 32 || !timingSafeEqual(proof, own)) return 'it was not made for this node'
    const age = now - given.readUIntBE(0, timeBytes)
    return age > nonceLifeMs || age < -slackMs ? 'it is older than two minutes' : undefined
  }

  #proofOf(node: string, given: Uint8Array): Buffer {
    return createHmac('sha256', this.#nonceKey).update(`${node} `).update(given).digest().subarray(0, 16)
  }

  /** Returns K, 32 bytes that only the TPM with this EK and AK can get. */
  secretFor({ node, nonce, ek, ak, salt }: Exchange): Buffer {
    return createHmac('sha256', this.#secret).update([node, nonce, ek, ak, salt].join(' ')).digest()
  }

  /** Whether `proof` shows that the TPM of this exchange got K. */
  isProof(exchange: Exchange, proof: string): boolean {
    const own = createHmac('sha256', this.secretFor(exchange)).update('svcd-bound').digest()
    const given = Buffer.from(proof, 'hex')
    return given.length === own.length && timingSafeEqual(given, own)
  }

  /** Signs a text; the signature in DER, as base64. */
  sign(text: string): string {
    return sign('sha256', Buffer.from(text), this.#key).toString('base64')
  }
}

/**
 * Agrees on the key of one answer with the boot that asked. It takes K, which the TPM opens in any boot, and
 * the boot's own key, which ends with its memory: a recorded answer is of no use to a later boot. `exchange`
 * is svcd's half, in DER.
 */
export function agreeWith(peer: KeyObject, secret: Uint8Array): { key: Buffer; exchange: Buffer } {
  const own = generateKeyPairSync('ec', { namedCurve: curve })
  const shared = diffieHellman({ privateKey: own.privateKey, publicKey: peer })
  return {
    key: createHmac('sha256', secret).update(shared).digest(),
    exchange: own.publicKey.export({ format: 'der', type: 'spki' })
  }
}

/** The DER of a public key of P-256 up to its point, which follows uncompressed. */
const spkiPrefix = Buffer.from('3059301306072a8648ce3d020106082a8648ce3d030107034200', 'hex')

/**
 * Reads a public key of P-256 in the DER that openssl writes; undefined for what is none. Only a point of the
 * curve gets to createPublicKey: a key with the point at infinity ends the process when node looks at it.
 */
export function readExchange(der: Buffer): KeyObject | undefined {
  const point = der.subarray(spkiPrefix.length)
  if (!der.subarray(0, spkiPrefix.length).equals(spkiPrefix) || point.length !== 65) return undefined
  try {
    ECDH.convertKey(point, curve)
    return createPublicKey({ key: der, format: 'der', type: 'spki' })
  } catch {
    return undefined
  }
}

/** Encrypts with a key that is never used twice, so that the IV may be zero. */
export function sealWith(key: Uint8Array, text: string): Buffer {
  const cipher = createCipheriv('aes-256-cbc', key, Buffer.alloc(16))
  return Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
}

/** Makes the private key from derived bytes; of 2^32 of them one is no key of the curve. */
function privateKey(keyFor: (purpose: string) => Uint8Array): KeyObject {
  for (let i = 0; ; i++) {
    const d = keyFor(`trust key ${i}`)
    const ecdh = createECDH(curve)
    try {
      ecdh.setPrivateKey(d)
    } catch {
      continue
    }
    const point = ecdh.getPublicKey()
    const [x, y] = [point.subarray(1, 33), point.subarray(33)].map(one => one.toString('base64url'))
    const jwk = { kty: 'EC', crv: 'P-256', d: Buffer.from(d).toString('base64url'), x: x ?? '', y: y ?? '' }
    return createPrivateKey({ key: jwk, format: 'jwk' })
  }
}
