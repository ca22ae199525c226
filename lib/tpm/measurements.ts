import { hash, verify } from 'node:crypto'
import { Cursor, ECDSA, hex, RSASSA, SHA256, TpmError } from './cursor.js'
import { padded, type TpmPublic } from './keys.js'

const LONGEST_LOG = 256 * 1024
const MOST_EVENTS = 1536
/** Bytes of a text for people. */
const LONGEST_TEXT = 300
const NO_ACTION = 3
const IPL = 0x0d
const VARIABLE_CONFIG = 0x80000001
const VARIABLES: readonly number[] = [VARIABLE_CONFIG, 0x80000002, 0x8000000c, 0x800000e0]
/** EV_POST_CODE, EV_ACTION, EV_COMPACT_HASH, EV_IPL and EV_EFI_ACTION. */
const TEXTS: readonly number[] = [1, 5, 0x0c, IPL, 0x80000007]
/** The digest of EV_SEPARATOR, which stands before the first program that the firmware starts. */
const SEPARATOR = hash('sha256', Buffer.alloc(4), 'buffer')
/** The GUID of UEFI's own variables, such as SecureBoot. */
const GLOBAL_VARIABLE = '61dfe48bca93d211aa0d00e098032b8c'

/** One measurement: firmware, shim, GRUB or the kernel logged it when it extended a PCR. */
export interface LogEvent {
  readonly pcr: number
  /** The number of its type; EV_NO_ACTION (3) extends nothing. */
  readonly type: number
  /** The PCR was extended by this digest. */
  readonly sha256: Buffer
  /** A view of the log, as the machine tells it: `isVouched` says whether it is what was measured. */
  readonly data: Buffer
}

/**
 * Reads the event log of a machine (TCG crypto-agile format, binary_bios_measurements) of at most 256 KiB and
 * 1,536 events, each with its SHA-256 digest.
 * @throws TpmError for another format, a log without SHA-256, or one that is cut (rules 15.12).
 */
export function readEventLog(log: Buffer): LogEvent[] {
  const cursor = new Cursor('event log', log, LONGEST_LOG, true)
  const sizes = readHeader(cursor)
  const events: LogEvent[] = []
  while (cursor.left > 0) {
    if (events.length === MOST_EVENTS) throw cursor.wrong('its events', `are more than ${MOST_EVENTS}`)
    events.push(readEvent(cursor, sizes, `event ${events.length + 1}`))
  }
  return events
}

/** The first event, in the format of TPM 1.2: the algorithms of all others, and the bytes of a digest. */
function readHeader(cursor: Cursor): ReadonlyMap<number, number> {
  cursor.take(28, 'its header')
  const bytes = cursor.take(cursor.u32('its header'), 'its header')
  const header = new Cursor('event log', bytes, LONGEST_LOG, true)
  if (header.take(16, 'its header').toString('latin1') !== 'Spec ID Event03\0')
    throw header.wrong('its header', 'is not that of TPM 2.0')
  header.take(8, 'its version')
  const count = header.u32('number of algorithms')
  if (count > 8) throw header.wrong('number of algorithms', `is ${count}; the most are 8`)
  const sizes = new Map<number, number>()
  for (let i = 0; i < count; i++) sizes.set(header.u16('algorithm'), header.u16('size of digests'))
  header.take(header.u8('vendor'), 'vendor')
  header.end()
  if (sizes.get(SHA256) !== 32) throw header.wrong('its algorithms', 'have no sha256: this bank is off')
  return sizes
}

function readEvent(cursor: Cursor, sizes: ReadonlyMap<number, number>, field: string): LogEvent {
  const pcr = cursor.u32(field)
  const type = cursor.u32(field)
  // An event that extends nothing may be of PCR 0xffffffff.
  if (pcr > 23 && type !== NO_ACTION) throw cursor.wrong(field, `is of PCR ${pcr}; the last one is 23`)
  const count = cursor.u32(field)
  if (count > sizes.size) throw cursor.wrong(field, `has ${count} digests; the most are ${sizes.size}`)
  let sha256: Buffer | undefined
  for (let i = 0; i < count; i++) {
    const algorithm = cursor.u16(field)
    const size = sizes.get(algorithm)
    if (size === undefined) throw cursor.wrong(field, `has a digest of ${hex(algorithm)}`)
    const digest = cursor.take(size, field)
    if (algorithm === SHA256) sha256 = digest
  }
  if (!sha256) throw cursor.wrong(field, 'has no sha256')
  const data = cursor.take(cursor.u32(field), field)
  return { pcr, type, sha256, data }
}

/** Returns the name of a variable, file or command in an event, for people: printable, cut, '' for none. */
export function textOf({ type, data }: LogEvent): string {
  const isText = TEXTS.includes(type)
  const text = isText
    ? data.toString('utf8', 0, LONGEST_TEXT)
    : VARIABLES.includes(type)
      ? variableOf(data)?.name
      : ''
  return printable(text ?? '').trim()
}

/** Returns a text of a machine without control characters, those of C1 and of writing direction included. */
export const printable = (text: string): string => text.replace(/[\p{C}\p{Z}\ufffd]/gu, ' ')

/** Reads a variable of the firmware (UEFI_VARIABLE_DATA); its name is cut. Throws nothing: a log has many. */
function variableOf(data: Buffer) {
  if (data.length < 32) return undefined
  const value = 32 + 2 * Number(data.readBigUInt64LE(16))
  const end = value + Number(data.readBigUInt64LE(24))
  if (end > data.length) return undefined
  const name = data.toString('utf16le', 32, Math.min(value, 32 + 2 * LONGEST_TEXT))
  return { guid: data.toString('hex', 0, 16), name, value: data.subarray(value, end) }
}

/** Returns the events that extend a PCR. */
export const extending = (events: readonly LogEvent[], of: number): LogEvent[] =>
  events.filter(({ pcr, type }) => pcr === of && type !== NO_ACTION)

/** Whether an event is EV_SEPARATOR: behind it stand the measurements of what the firmware starts. */
export const isSeparator = ({ sha256 }: LogEvent): boolean => sha256.equals(SEPARATOR)

/** Whether its digest is that of its data or GRUB's text: other data may be made up, and no PCR shows it. */
export const isVouched = (event: LogEvent): boolean =>
  isOf(event, event.data) || commandOf(event) !== undefined

/** Returns what GRUB measured behind `grub_cmd: ` or `kernel_cmdline: `; undefined for other events. */
export function commandOf(event: LogEvent): string | undefined {
  const { type, data } = event
  if (type !== IPL) return undefined
  const prefix = /^(grub|kernel)_cmd(line)?: /.exec(data.toString('latin1', 0, 20))?.[0]
  const text = prefix && data.subarray(prefix.length, -1)
  return text && isOf(event, text) ? text.toString('utf8') : undefined
}

const isOf = ({ sha256 }: LogEvent, data: Buffer) => sha256.equals(hash('sha256', data, 'buffer'))

/** Returns the values that the PCRs have after these events; those without an event are left out. */
export function replay(events: Iterable<LogEvent>): Map<number, Buffer> {
  const values = new Map<number, Buffer>()
  const both = Buffer.alloc(64)
  for (const { pcr, type, sha256, data } of events) {
    if (type !== NO_ACTION) {
      both.set(values.get(pcr) ?? startOf(pcr))
      both.set(sha256, 32)
      values.set(pcr, hash('sha256', both, 'buffer'))
    }
    // The TPM was started from another locality, whose number is then the start of PCR 0.
    else if (pcr === 0 && data.length === 17 && data.toString('latin1', 0, 16) === 'StartupLocality\0')
      values.set(0, Buffer.concat([Buffer.alloc(31), data.subarray(16)]))
  }
  return values
}

/**
 * Returns whether Secure Boot was on, by the variable that the firmware measured into PCR 7; undefined when
 * the log does not tell it once, or in data that its digest does not vouch for. Only events before the
 * separator count: the system that runs can extend PCR 7 too, and types and data are the sender's word.
 */
export function secureBootOf(events: readonly LogEvent[]): boolean | undefined {
  const own = extending(events, 7)
  const end = own.findIndex(isSeparator)
  const found = own.slice(0, Math.max(end, 0)).flatMap(event => {
    const variable = event.type === VARIABLE_CONFIG ? variableOf(event.data) : undefined
    const isIt = variable?.guid === GLOBAL_VARIABLE && variable.name === 'SecureBoot'
    return isIt ? [isOf(event, event.data) ? variable.value.toString('hex') : ''] : []
  })
  return found.length === 1 && found[0] ? found[0] === '01' : undefined
}

const GENERATED = 0xff544347
const ATTEST_QUOTE = 0x8018
/** A quote has three names or digests of at most 66 bytes, and a signature is one of RSA 4096 at most. */
const LONGEST_QUOTE = 1024

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
  const found = readQuote(new Cursor('quote', quote, LONGEST_QUOTE))
  const value = readSignature(ak, new Cursor('signature', signature, LONGEST_QUOTE))
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
  const scheme = kind === 'rsa' ? RSASSA : ECDSA
  cursor.expect(scheme, cursor.u16('scheme'), 'scheme', 'that of the attestation key')
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
const startOf = (pcr: number): Buffer => Buffer.alloc(32, pcr >= 17 && pcr <= 22 ? 0xff : 0)
