import { hash, type KeyObject, type X509Certificate } from 'node:crypto'
import { badRequest } from '../base/errors.js'
import type { JsonObject } from '../base/json.js'
import { clip } from '../base/log.js'
import type { MeasuredBoot } from '../boot/grub/script.js'
import type { ekOf } from '../model/trust.js'
import type { FirmwareDoc } from '../model/types/firmware.js'
import { checkEkCertificate } from '../tpm/certificate.js'
import { tried } from '../tpm/cursor.js'
import { parsePublic, type TpmPublic } from '../tpm/keys.js'
import {
  checkQuote,
  commandOf,
  extending,
  type LogEvent,
  pcrDigest,
  printable,
  readEventLog,
  replay,
  secureBootOf
} from '../tpm/measurements.js'
import {
  describeEvent,
  type Firmware,
  firmwareFault,
  firmwareText,
  measuredFirmware,
  programEvents
} from './firmware.js'
import { readExchange } from './keys.js'

export type Verdict = 'good' | 'bad' | 'unknown'

/** The facts that evidence is judged by. */
interface Yardstick {
  readonly node: string
  /** The EK that the node is enrolled with, as `ekOf` returns it. */
  readonly ek: ReturnType<typeof ekOf>
  /** Whether it was proved that the AK of the evidence lives in the TPM with its EK. */
  readonly isBound: boolean
  /** The measurements of a boot as svcd tells it, for each MAC; or why they are not known. */
  readonly measured: readonly MeasuredBoot[] | string
  readonly accepted: FirmwareDoc | undefined
  readonly needsSecureBoot: boolean
  /** PCR 8 and 9 of the last good boot. */
  readonly lastGood: string | undefined
  readonly authorities: readonly X509Certificate[]
  /** Milliseconds since 1970. */
  readonly now: number
}

/** The outcome: a verdict with its reason, and what the machine measured. */
export interface Finding {
  readonly verdict: Verdict
  /** One sentence. */
  readonly reason: string
  /** False: what is below was not signed by the AK, and nothing follows from it. */
  readonly isQuoted: boolean
  readonly pcrs: Readonly<Record<string, string>>
  readonly secureBoot: boolean | undefined
  /** Lines of `FirmwareDoc`, and whether an admin has to accept them. */
  readonly firmware: readonly string[]
  readonly isNewFirmware: boolean
  /** PCR 8 and 9 as one text. */
  readonly booted: string
  /** How often its TPM was reset; undefined where nothing was quoted. */
  readonly resets: number | undefined
  /** An authority of `[trust] ek_ca` vouches for its EK. */
  readonly isVouched: boolean
}

/** The PCRs that a quote has to show. */
const quoted = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14]

const nothing = {
  ...{ isQuoted: false, pcrs: {}, secureBoot: undefined, firmware: [], isNewFirmware: false },
  ...{ booted: '', isVouched: false, resets: undefined }
} as const
const bad = (reason: string): Finding => ({ ...nothing, verdict: 'bad', reason })

/** Judges evidence (rules 15.3). A usual boot takes a millisecond or two, the longest log some five. */
export function judge(evidence: Evidence, by: Yardstick): Finding {
  const read = tried(() => signedOf(evidence))
  if (typeof read === 'string') return bad(read)
  const vouched = tried(() => isByAuthority(evidence, by))
  const { values, events, resets } = read
  const lines = measuredFirmware(values, events)
  const pcrs = Object.fromEntries(
    quoted.map(pcr => [pcr, (values.get(pcr) ?? Buffer.alloc(32)).toString('hex')])
  )
  const booted = `${pcrs[8]} ${pcrs[9]}`
  const secureBoot = secureBootOf(events)
  const firmware = firmwareFinding(evidence, by, lines, events)
  const [verdict, reason] = whole(evidence, by, [
    typeof vouched === 'string' ? (['bad', vouched] as const) : undefined,
    bootFault(by, events, booted),
    secureBoot || !by.needsSecureBoot ? undefined : (['bad', 'Secure Boot is off'] as const),
    firmware
  ])
  return {
    ...{ verdict, reason, isQuoted: true, resets, pcrs, secureBoot, booted },
    firmware: lines,
    isNewFirmware: firmware !== undefined,
    isVouched: vouched === true
  }
}

type Fault = readonly [Verdict, string] | undefined

/** Joins what is known of the machine and of its boot: the first fault counts. */
function whole({ ek, ak }: Evidence, { node, ek: own, isBound }: Yardstick, faults: readonly Fault[]) {
  const fault = faults.find(one => one !== undefined)
  const also = fault ? `; besides: ${fault[1]}` : ''
  if (!ek.isEndorsementKey)
    return ['bad', 'its endorsement key is none: it could open what is for others'] as const
  if (own.fault !== undefined) return ['unknown', `${own.fault}: svcctl node trust ${node} --forget`] as const
  if (own.sha256 !== undefined && own.sha256 !== ek.spkiSha256)
    return [
      isBound ? 'bad' : 'unknown',
      `another TPM than that of node ${node} asks: its EK is ${ek.spkiSha256}`
    ] as const
  if (own.sha256 === undefined)
    return ['unknown', `no TPM is enrolled for node ${node} yet: svcctl node trust ${node}${also}`] as const
  if (!isBound)
    return ['unknown', `it is not proved yet that its key ${ak.name.toString('hex')} is of its TPM`] as const
  return fault ?? (['good', 'it is the enrolled machine, and booted what svcd told it to'] as const)
}

/** Returns what the AK signed, or a sentence on what does not fit. Throws TpmError. */
function signedOf({ ak, nonce, exchange, quote, signature, log }: Evidence) {
  const signed = checkQuote(ak, quote, signature)
  // The boot's key is in what the TPM signs: nobody can put another one in its place.
  if (signed.nonce.toString('hex') !== hash('sha256', Buffer.concat([Buffer.from(nonce), exchange.der])))
    return 'the quote has another nonce or exchange key: it is an old one, or was made for others'
  if (String(signed.pcrs) !== String(quoted)) return `the quote is of PCRs ${signed.pcrs}, not of ${quoted}`
  const events = readEventLog(log)
  const values = replay(events)
  return pcrDigest(values, quoted).equals(signed.digest)
    ? { values, events, resets: signed.resets }
    : 'the event log does not match the PCRs of the quote'
}

/** A node that is enrolled needs nobody who vouches for its TPM. */
function isByAuthority({ certificate, ek }: Evidence, { ek: own, authorities, now }: Yardstick): boolean {
  if (!certificate || authorities.length === 0 || own.sha256 !== undefined || own.isForgotten) return false
  checkEkCertificate(certificate, ek, authorities, now)
  return true
}

function firmwareFinding(
  { firmware }: Evidence,
  by: Yardstick,
  lines: readonly string[],
  events: readonly LogEvent[]
): Fault {
  if (!by.accepted) {
    const what = firmwareText(firmware)
    return ['unknown', `nothing is accepted yet for ${what}: svcctl node trust ${by.node}`]
  }
  const fault = firmwareFault(by.accepted, lines, events)
  return fault === undefined ? undefined : ['bad', fault]
}

/** Compares PCR 4, 8 and 9 with what svcd computes. */
function bootFault({ measured, lastGood }: Yardstick, events: readonly LogEvent[], booted: string): Fault {
  if (typeof measured === 'string')
    return ['unknown', `it is not known what this node has to measure: ${measured}`]
  const [first] = extending(events, 8)
  // The first command tells the architecture: a difference from the other one would tell nothing.
  const alike = measured.filter(
    ({ commands: [own] }) => own && hash('sha256', own.text) === first?.sha256.toString('hex')
  )
  const faults = (alike.length > 0 ? alike : measured).map(one => differenceFrom(one, events))
  const fault = faults.includes(undefined) ? undefined : faults[0]
  if (fault === undefined) return undefined
  return booted === lastGood
    ? ['unknown', `it booted as it did before; that was changed since: start it anew (${fault})`]
    : ['bad', fault]
}

function differenceFrom(measured: MeasuredBoot, events: readonly LogEvent[]): string | undefined {
  const wanted = measured.commands.map(({ what, text }) => ({
    what: what === 'kernel_cmdline' ? "the kernel's command line" : `the command ${word(text)}`,
    sha256: hash('sha256', text),
    text
  }))
  return (
    commandFault(extending(events, 8), wanted) ??
    fileFault(9, extending(events, 9), measured.files) ??
    fileFault(4, programEvents(events), measured.programs)
  )
}

const word = (text: string) => JSON.stringify(text.split(' ', 1)[0])

const firstDifferent = (events: readonly LogEvent[], wanted: readonly { readonly sha256: string }[]) => {
  const at = Array.from({ length: Math.max(events.length, wanted.length) }, (_, i) => i)
  return at.find(i => events[i]?.sha256.toString('hex') !== wanted[i]?.sha256)
}

function commandFault(
  events: readonly LogEvent[],
  wanted: readonly { readonly what: string; readonly sha256: string; readonly text: string }[]
): string | undefined {
  const at = firstDifferent(events, wanted)
  if (at === undefined) return undefined
  const [event, due] = [events[at], wanted[at]]
  if (!event) return `PCR 8 differs: GRUB did not run ${due?.what}`
  if (!due) return `PCR 8 differs: GRUB ran more than svcd gave it: ${describeEvent(event)}`
  const [ran, given] = whereDifferent(commandOf(event), due.text)
  return `PCR 8 differs: ${due.what} is ${ran ?? describeEvent(event)}, and svcd gave ${given}`
}

/** Quotes two texts from the word on in which they differ: a command line may be long. */
function whereDifferent(ran: string | undefined, given: string): readonly [string | undefined, string] {
  const words = [ran ?? '', given].map(text => text.split(' '))
  const at = words[1]?.findIndex((word, i) => word !== words[0]?.[i]) ?? 0
  const from = at < 0 ? (words[1]?.length ?? 1) - 1 : Math.max(0, at - 1)
  const shown = (all: readonly string[] = []) =>
    JSON.stringify(`${from > 0 ? '… ' : ''}${printable(clip(all.slice(from).join(' '), 200))}`)
  return [ran === undefined ? undefined : shown(words[0]), shown(words[1])]
}

function fileFault(
  pcr: 4 | 9,
  events: readonly LogEvent[],
  wanted: MeasuredBoot['files']
): string | undefined {
  const [verb, more] = pcr === 4 ? ['start', 'started a program'] : ['read', 'read a file']
  const at = firstDifferent(events, wanted)
  if (at === undefined) return undefined
  const [event, due] = [events[at], wanted[at]]
  if (!event) return `PCR ${pcr} differs: the machine did not ${verb} ${due?.what}, ${due?.name}`
  if (!due) return `PCR ${pcr} differs: the machine ${more} more: ${describeEvent(event)}`
  return `PCR ${pcr} differs: ${due.what} is not ${due.name} as svcd has it`
}

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
    const read = tried(() => parsePublic(bytes(body[field])))
    if (typeof read !== 'string') return read
    throw badRequest(`node ${node}: field "${field}": ${read}`, 'invalid-field')
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
const told = (value: unknown) => {
  const text = typeof value === 'string' ? value.replace(/[^\x20-\x7e]/g, '?') : ''
  return text.trim().slice(0, longestText)
}
