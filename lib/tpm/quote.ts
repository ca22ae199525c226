import { hash, verify } from 'node:crypto'
import { Cursor, ECDSA, RSASSA, SHA256, TpmError } from './cursor.js'
import { padded, type TpmPublic } from './public.js'

const GENERATED = 0xff544347
const ATTEST_QUOTE = 0x8018
/** A quote has three names or digests of at most 66 bytes, and a signature is one of RSA 4096 at most. */
const LONGEST = 1024

/** The values of PCRs that a TPM signed, as one digest. */
export interface Quote {
  readonly nonce: Buffer
  /** The PCRs of the SHA-256 bank that it quotes, ascending. */
  readonly pcrs: readonly number[]
  /** SHA-256 of their values, in that order: see `pcrDigest`. */
  readonly digest: Buffer
  /** How often the TPM was reset: another number is another boot. Only an endorsement key tells it. */
  readonly resets: number
}

/**
 * Reads a quote (TPMS_ATTEST, `tpm2_quote -m`) and verifies its signature (TPMT_SIGNATURE, `-s`) by an
 * attestation key, which signs nothing but what its TPM made itself. The caller compares the nonce, and has
 * to know whether the key is of the right TPM.
 * @throws TpmError for a key that is no attestation key, another field or another signature (rules 15.11).
 */
export function checkQuote(ak: TpmPublic, quote: Buffer, signature: Buffer): Quote {
  if (!ak.isAttestationKey)
    throw new TpmError('public area', 'of the attestation key', 'is not that of a restricted key of one TPM')
  const found = readQuote(new Cursor('quote', quote, LONGEST))
  const value = readSignature(ak, new Cursor('signature', signature, LONGEST))
  if (!verify('sha256', quote, { key: ak.key, dsaEncoding: 'ieee-p1363' }, value))
    throw new TpmError('signature', 'value', 'is not by the attestation key that came with the quote')
  return found
}

function readQuote(cursor: Cursor): Quote {
  cursor.expect(GENERATED, cursor.u32('magic'), 'magic', 'a TPM made this')
  cursor.expect(ATTEST_QUOTE, cursor.u16('type'), 'type', 'a quote')
  cursor.sized('signer', 66)
  const nonce = cursor.sized('nonce', 66)
  cursor.take(8, 'clock')
  const resets = cursor.u32('clock')
  cursor.take(5, 'clock')
  cursor.take(8, 'firmware version')
  cursor.expect(1, cursor.u32('number of PCR banks'), 'number of PCR banks', 'sha256 alone')
  cursor.expect(SHA256, cursor.u16('PCR bank'), 'PCR bank', 'sha256')
  const selection = cursor.take(cursor.u8('PCR selection'), 'PCR selection')
  const pcrs = Array.from({ length: 8 * selection.length }, (_, pcr) => pcr)
  const digest = cursor.sized('PCR digest', 32)
  if (digest.length < 32) throw cursor.wrong('PCR digest', `has ${digest.length} bytes, and not 32`)
  cursor.end()
  return { nonce, digest, resets, pcrs: pcrs.filter(pcr => ((selection[pcr >> 3] ?? 0) >> (pcr & 7)) & 1) }
}

/** The signature as node:crypto takes it. */
function readSignature({ kind, point }: TpmPublic, cursor: Cursor): Buffer {
  cursor.expect(
    kind === 'rsa' ? RSASSA : ECDSA,
    cursor.u16('scheme'),
    'scheme',
    'that of the attestation key'
  )
  cursor.expect(SHA256, cursor.u16('hash'), 'hash', 'sha256')
  const bytes = point?.x.length ?? 512
  const value = point
    ? Buffer.concat(['r', 's'].map(field => padded(cursor.sized(field, bytes), bytes)))
    : cursor.sized('value', bytes)
  cursor.end()
  return value
}

/** Returns SHA-256 of the values of these PCRs in ascending order, as a quote of them has it. */
export function pcrDigest(values: ReadonlyMap<number, Buffer>, pcrs: readonly number[]): Buffer {
  const ascending = [...pcrs].sort((a, b) => a - b)
  return hash('sha256', Buffer.concat(ascending.map(pcr => values.get(pcr) ?? startOf(pcr))), 'buffer')
}

/** Returns the value of a PCR that nothing has extended: 17 to 22, for a late launch, begin with ones. */
export const startOf = (pcr: number): Buffer => Buffer.alloc(32, pcr >= 17 && pcr <= 22 ? 0xff : 0)
