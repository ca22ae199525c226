import type { KeyObject } from 'node:crypto'
import { badRequest } from '../base/errors.js'
import type { JsonObject } from '../base/json.js'
import { TpmError } from '../tpm/cursor.js'
import { parsePublic, type TpmPublic } from '../tpm/public.js'
import type { Firmware } from './firmware.js'
import { readExchange } from './keys.js'

/** Bytes of an event log, and of all that a quote holds, in base64 and JSON. */
const longestLog = 256 * 1024
export const longestQuote = 512 * 1024
/** Bytes of the key of a boot in DER: one of P-256 has 91. */
const longestExchange = 200
/** Characters of what a firmware says of itself. */
const longestText = 128

/** The evidence of a machine: nothing of it is checked yet but its form. */
export interface Evidence {
  /** 64 hex digits. */
  readonly nonce: string
  /** The key that this boot alone has, and its DER, which the quote is bound to. */
  readonly exchange: { readonly key: KeyObject; readonly der: Buffer }
  readonly ek: TpmPublic
  readonly ak: TpmPublic
  readonly certificate: Buffer | undefined
  readonly quote: Buffer
  readonly signature: Buffer
  readonly log: Buffer
  readonly firmware: Firmware
}

/** The fields of the body, in base64 but `nonce` and `firmware`. */
export interface QuoteBody {
  readonly nonce: string
  readonly exchange: string
  readonly ek: string
  readonly ak: string
  readonly ek_certificate: string | null
  readonly quote: string
  readonly signature: string
  readonly log: string
  readonly firmware: JsonObject | null
}

const bytes = (text: string) => Buffer.from(text, 'base64')

/** Reads the key of a boot. Throws 400 for what is none. */
function exchangeOf(node: string, der: Buffer): Evidence['exchange'] {
  const key = der.length <= longestExchange ? readExchange(der) : undefined
  if (!key)
    throw badRequest(`node ${node}: field "exchange" is no public key of P-256 in DER`, 'invalid-field')
  return { key, der }
}

/** Reads a body. Throws 400 for keys that are none, and for a log that is too long. */
export function readEvidence(node: string, body: QuoteBody): Evidence {
  const key = (field: 'ek' | 'ak'): TpmPublic => {
    try {
      return parsePublic(bytes(body[field]))
    } catch (error) {
      if (!(error instanceof TpmError)) throw error
      throw badRequest(`node ${node}: field "${field}": ${error.message}`, 'invalid-field')
    }
  }
  const log = bytes(body.log)
  if (log.length > longestLog)
    throw badRequest(`node ${node}: field "log" has ${log.length} bytes: more than ${longestLog}`, 'too-long')
  const { vendor, product, bios_version: version } = body.firmware ?? {}
  return {
    ...{ nonce: body.nonce, ek: key('ek'), ak: key('ak'), log },
    exchange: exchangeOf(node, bytes(body.exchange)),
    certificate: body.ek_certificate === null ? undefined : bytes(body.ek_certificate),
    ...{ quote: bytes(body.quote), signature: bytes(body.signature) },
    firmware: { vendor: told(vendor), product: told(product), version: told(version) }
  }
}

/** A text of a machine, for messages and names: printable, and short. */
const told = (value: unknown) =>
  typeof value === 'string'
    ? value
        .replace(/[^\x20-\x7e]/g, '?')
        .trim()
        .slice(0, longestText)
    : ''
