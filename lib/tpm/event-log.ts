import { createHash } from 'node:crypto'
import { Cursor, HASHES, hex, SHA256, TpmError } from './cursor.js'
import { startOf } from './quote.js'

const LONGEST_LOG = 256 * 1024
const MOST_EVENTS = 4096
/** Characters of a text for people. */
const LONGEST_TEXT = 300
const NO_ACTION = 3
const IPL = 0x0d
const VARIABLE_CONFIG = 0x80000001
const VARIABLES: readonly number[] = [VARIABLE_CONFIG, 0x80000002, 0x8000000c, 0x800000e0]
const IMAGES: readonly number[] = [0x80000003, 0x80000004, 0x80000005]
/** EV_POST_CODE, EV_ACTION, EV_IPL, EV_COMPACT_HASH and EV_EFI_ACTION. */
const TEXTS: readonly number[] = [1, 5, IPL, 0x0c, 0x80000007]
const GLOBAL_VARIABLE = '61dfe48bca93d211aa0d00e098032b8c'

/** One measurement: firmware, shim, GRUB or the kernel logged it when it extended a PCR. */
export interface LogEvent {
  readonly pcr: number
  /** The number of its type; `EV_NO_ACTION` (3) extends nothing. */
  readonly type: number
  /** The PCR was extended by this digest. */
  readonly sha256: Buffer
  /** As the machine tells it: only `isVouched` says whether it is what was measured. A view of the log. */
  readonly data: Buffer
  /** For people: the name of a variable, file or command, in printable characters, cut. */
  readonly text?: string
}

/**
 * Reads the event log of a machine (TCG crypto-agile format, binary_bios_measurements) with the SHA-256
 * digest of each event. At most 256 KiB and 4,096 events.
 * @throws TpmError for another format, a log without SHA-256, or one that is cut (rules 15.12).
 */
export function readEventLog(log: Buffer): LogEvent[] {
  if (log.length > LONGEST_LOG)
    throw new TpmError('event log', 'its size', `is ${log.length} bytes; the most are ${LONGEST_LOG}`)
  const cursor = new Cursor('event log', log, true)
  const sizes = readHeader(cursor)
  const events: LogEvent[] = []
  while (cursor.left > 0) {
    if (events.length === MOST_EVENTS) throw cursor.wrong('its events', `are more than ${MOST_EVENTS}`)
    events.push(readEvent(cursor, sizes, events.length + 1))
  }
  return events
}

/** The first event, in the old format, which gives the algorithms of all others. */
function readHeader(cursor: Cursor): ReadonlyMap<number, number> {
  cursor.u32('PCR of its header')
  if (cursor.u32('type of its header') !== NO_ACTION) throw cursor.wrong('its header', 'is no Spec ID event')
  cursor.take(20, 'digest of its header')
  const length = cursor.u32('size of its header')
  const header = new Cursor('event log', cursor.take(length, 'its header'), true)
  if (header.take(16, 'its header').toString('latin1') !== 'Spec ID Event03\0')
    throw header.wrong('its header', 'is no Spec ID event of TPM 2.0')
  header.take(8, 'version of its header')
  const count = header.u32('number of algorithms')
  if (count > 8) throw header.wrong('number of algorithms', `is ${count}`)
  const sizes = new Map<number, number>()
  for (let i = 0; i < count; i++) {
    const algorithm = header.u16('algorithm')
    const size = header.u16('size of digests')
    if (size > 128 || size !== (HASHES.get(algorithm)?.size ?? size))
      throw header.wrong('size of digests', `of ${hex(algorithm)} is ${size}`)
    sizes.set(algorithm, size)
  }
  if (!sizes.has(SHA256)) throw header.wrong('its algorithms', 'have no sha256: this bank of the TPM is off')
  header.take(header.u8('size of the vendor'), 'vendor')
  header.end()
  return sizes
}

function readEvent(cursor: Cursor, sizes: ReadonlyMap<number, number>, number: number): LogEvent {
  const pcr = cursor.u32(`PCR of event ${number}`)
  if (pcr > 23) throw cursor.wrong(`PCR of event ${number}`, `is ${pcr}`)
  const type = cursor.u32(`type of event ${number}`)
  const count = cursor.u32(`digests of event ${number}`)
  if (count > sizes.size) throw cursor.wrong(`digests of event ${number}`, `are ${count}`)
  let sha256: Buffer | undefined
  for (let i = 0; i < count; i++) {
    const algorithm = cursor.u16(`digests of event ${number}`)
    const size = sizes.get(algorithm)
    if (size === undefined) throw cursor.wrong(`digests of event ${number}`, `have a ${hex(algorithm)}`)
    const digest = cursor.take(size, `digests of event ${number}`)
    if (algorithm !== SHA256) continue
    if (sha256) throw cursor.wrong(`digests of event ${number}`, 'have two sha256')
    sha256 = digest
  }
  if (!sha256) throw cursor.wrong(`digests of event ${number}`, 'have no sha256')
  const size = cursor.u32(`data of event ${number}`)
  const data = cursor.take(size, `data of event ${number}`)
  const text = textOf(type, data)
  return { pcr, type, sha256, data, ...(text !== undefined && { text }) }
}

/** The name in the data of an event; undefined where they hold none. */
function textOf(type: number, data: Buffer): string | undefined {
  if (VARIABLES.includes(type)) return shown(variableOf(data)?.name)
  if (IMAGES.includes(type)) return shown(pathOf(data))
  if (type === 8) return shown(data.toString('utf16le'))
  return TEXTS.includes(type) ? shown(data.toString()) : undefined
}

/** Without control characters and the zeros at its end; undefined when nothing is left. */
function shown(text = ''): string | undefined {
  const clean = text.replace(/\0+$/, '').slice(0, LONGEST_TEXT)
  return clean.replace(/[\p{C}\p{Z}\ufffd]/gu, ' ').trim() || undefined
}

/** A UEFI_VARIABLE_DATA; undefined when it is none. */
function variableOf(data: Buffer): { guid: string; name: string; value: Buffer } | undefined {
  try {
    const cursor = new Cursor('variable', data, true)
    const guid = cursor.take(16, 'GUID').toString('hex')
    const length = cursor.u64('name')
    const size = cursor.u64('value')
    const name = cursor.take(2 * length, 'name').toString('utf16le')
    const value = cursor.take(size, 'value')
    cursor.end()
    return { guid, name, value }
  } catch {
    return undefined
  }
}

/** The file or the address in the device path of a UEFI_IMAGE_LOAD_EVENT. */
function pathOf(data: Buffer): string | undefined {
  try {
    const cursor = new Cursor('image', data, true)
    cursor.take(24, 'place')
    const path = new Cursor('image', cursor.take(cursor.u64('path'), 'path'), true)
    let text: string | undefined
    while (path.left > 0) {
      const kind = path.u16('path')
      const node = path.take(path.u16('path') - 4, 'path')
      // A file (4.4) is a text of 16 bits a character, a URI (3.24) one of 8.
      if (kind === 0x0404) text = node.toString('utf16le')
      if (kind === 0x1803) text = node.toString()
    }
    return text
  } catch {
    return undefined
  }
}

const sha256 = (data: Buffer) => createHash('sha256').update(data).digest()

/**
 * Whether the digest of an event is that of its data, of the value of its variable, or of the command that
 * GRUB logged behind `grub_cmd: `. Other data may be made up by the sender of the log: no PCR shows them.
 */
export function isVouched({ type, data, sha256: digest }: LogEvent): boolean {
  if (digest.equals(sha256(data))) return true
  if (VARIABLES.includes(type)) return digest.equals(sha256(variableOf(data)?.value ?? data))
  const colon = type === IPL ? data.indexOf(': ') : -1
  const end = data.at(-1) === 0 ? data.length - 1 : data.length
  return colon > 0 && digest.equals(sha256(data.subarray(colon + 2, end)))
}

/** The values that the PCRs have after these events; those without an event are left out. */
export function replay(events: Iterable<LogEvent>): Map<number, Buffer> {
  const values = new Map<number, Buffer>()
  for (const { pcr, type, sha256, data } of events) {
    if (type !== NO_ACTION)
      values.set(
        pcr,
        createHash('sha256')
          .update(values.get(pcr) ?? startOf(pcr))
          .update(sha256)
          .digest()
      )
    // A TPM that was started from another locality begins PCR 0 with its number.
    else if (pcr === 0 && data.length === 17 && data.toString('latin1', 0, 16) === 'StartupLocality\0')
      values.set(0, Buffer.concat([Buffer.alloc(31), data.subarray(16)]))
  }
  return values
}

/**
 * Whether Secure Boot was on, by the variable that firmware measured into PCR 7; undefined when the log does
 * not tell it, or tells it in data that its digest does not vouch for.
 */
export function secureBootOf(events: Iterable<LogEvent>): boolean | undefined {
  const found: (boolean | undefined)[] = []
  for (const event of events) {
    if (event.pcr !== 7 || event.type !== VARIABLE_CONFIG) continue
    const variable = variableOf(event.data)
    if (variable?.guid !== GLOBAL_VARIABLE || variable.name !== 'SecureBoot') continue
    const isWhole = variable.value.length === 1 && event.sha256.equals(sha256(event.data))
    found.push(isWhole ? variable.value[0] === 1 : undefined)
  }
  return found.length === 1 ? found[0] : undefined
}
