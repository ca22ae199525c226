import { createHash, verify } from 'node:crypto'
import { Cursor, hex, SHA256, TpmError } from './cursor.js'
import { padded, type TpmPublic } from './public.js'

const GENERATED = 0xff544347
const ATTEST_QUOTE = 0x8018
const RSASSA = 0x0014
const ECDSA = 0x0018
/** The most bytes of a quote, of which names and digests have 64 at most, and of a signature of RSA 4096. */
const LONGEST = { quote: 512, signature: 1024 } as const

/** The values of PCRs that a TPM signed, as one digest. */
export interface Quote {
  readonly nonce: Buffer
  /** The PCRs of the SHA-256 bank that it quotes, in order. */
  readonly pcrs: readonly number[]
  /** SHA-256 of their values, in that order: see `pcrDigest`. */
  readonly digest: Buffer
}

/**
 * Reads a quote (TPMS_ATTEST, `tpm2_quote -m`) and verifies its signature (TPMT_SIGNATURE, `-s`) by an
 * attestation key. The key signs nothing but what its TPM made itself, so `ak.isAttestationKey` has to hold.
 * The caller compares the nonce, and whether the key is of the right TPM.
 * @throws TpmError when the signature or a field is another one (rules 15.11).
 */
export function checkQuote(ak: TpmPublic, quote: Buffer, signature: Buffer): Quote {
  if (!ak.isAttestationKey)
    throw new TpmError(
      'public area',
      'attestation key',
      'is no restricted signing key of one TPM with SHA-256'
    )
  for (const [what, bytes] of [['quote', quote] as const, ['signature', signature] as const])
    if (bytes.length > LONGEST[what])
      throw new TpmError(what, 'its size', `is ${bytes.length} bytes; the most are ${LONGEST[what]}`)
  const found = readQuote(quote)
  if (!isSignedBy(ak, quote, signature))
    throw new TpmError('quote', 'signature', 'is not by the attestation key that was sent with it')
  return found
}

function readQuote(quote: Buffer): Quote {
  const cursor = new Cursor('quote', quote)
  const magic = cursor.u32('magic')
  if (magic !== GENERATED) throw cursor.wrong('magic', `is ${hex(magic, 8)}: no TPM made this`)
  const type = cursor.u16('type')
  if (type !== ATTEST_QUOTE) throw cursor.wrong('type', `is ${hex(type)}, which is no quote`)
  cursor.sized('signer', 66)
  const nonce = cursor.sized('nonce', 64)
  cursor.take(17, 'clock')
  cursor.take(8, 'firmware version')
  const selections = cursor.u32('number of PCR banks')
  if (selections !== 1) throw cursor.wrong('number of PCR banks', `is ${selections}; it has to be 1, sha256`)
  const bank = cursor.u16('PCR bank')
  if (bank !== SHA256) throw cursor.wrong('PCR bank', `is ${hex(bank)}, which is not sha256`)
  const size = cursor.u8('PCR selection')
  if (size > 4) throw cursor.wrong('PCR selection', `has ${size} bytes`)
  const pcrs = [...cursor.take(size, 'PCR selection')].flatMap((byte, at) =>
    [0, 1, 2, 3, 4, 5, 6, 7].filter(bit => (byte >> bit) & 1).map(bit => at * 8 + bit)
  )
  const digest = cursor.sized('PCR digest', 32)
  if (digest.length !== 32) throw cursor.wrong('PCR digest', `has ${digest.length} bytes and not 32`)
  cursor.end()
  return { nonce, pcrs, digest }
}

function isSignedBy({ kind, key }: TpmPublic, quote: Buffer, signature: Buffer): boolean {
  const cursor = new Cursor('signature', signature)
  const scheme = cursor.u16('scheme')
  if (scheme !== (kind === 'rsa' ? RSASSA : ECDSA))
    throw cursor.wrong('scheme', `is ${hex(scheme)}, which is not that of the attestation key`)
  const hash = cursor.u16('hash')
  if (hash !== SHA256) throw cursor.wrong('hash', `is ${hex(hash)}, which is not sha256`)
  const part = (field: string, most: number) => cursor.sized(field, most)
  const size = kind === 'rsa' ? 512 : key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? 32 : 48
  const parts =
    kind === 'rsa' ? [part('value', size)] : ['r', 's'].map(field => padded(part(field, size), size))
  cursor.end()
  return verify('sha256', quote, { key, dsaEncoding: 'ieee-p1363' }, Buffer.concat(parts))
}

/** SHA-256 of the values of these PCRs, in ascending order: what a quote of them holds. */
export function pcrDigest(values: ReadonlyMap<number, Buffer>, pcrs: readonly number[]): Buffer {
  const digest = createHash('sha256')
  for (const pcr of [...pcrs].sort((a, b) => a - b)) digest.update(values.get(pcr) ?? startOf(pcr))
  return digest.digest()
}

/** The value of a PCR that nothing has extended: 17 to 22 are for a late launch, and begin with ones. */
export const startOf = (pcr: number): Buffer => Buffer.alloc(32, pcr >= 17 && pcr <= 22 ? 0xff : 0)
