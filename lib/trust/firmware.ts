import { hash } from 'node:crypto'
import type { FirmwareDoc } from '../model/types/firmware.js'
import { extending, isSeparator, isVouched, type LogEvent, replay, textOf } from '../tpm/measurements.js'

/** The PCRs of the firmware that are judged. 1 and 5 tell of boot order and disks, and change. */
const firmwarePcrs = [0, 2, 3, 4, 6, 7, 14]
/** Accepted values of one PCR: the oldest is dropped. */
const mostValues = 16
/** Events of a PCR of which digests are kept, to name the one that differs. */
const mostEvents = 64

/** A firmware, as it calls itself. */
export interface Firmware {
  readonly vendor: string
  readonly product: string
  readonly version: string
}

/** Names a machine and its firmware for a sentence. */
export const firmwareText = ({ vendor, product, version }: Firmware) =>
  `${`${vendor} ${product}`.trim() || 'unknown machine'}, firmware ${version || '?'}`

/** Returns the name of the accepted values of a model and firmware version. */
export const firmwareName = ({ vendor, product, version }: Firmware) =>
  hash('sha256', JSON.stringify([vendor, product, version])).slice(0, 32)

/** Returns what a boot measured of the firmware, a text for each PCR: `4 <sha256> <events>`. */
export const measuredFirmware = (
  values: ReadonlyMap<number, Buffer>,
  events: readonly LogEvent[]
): string[] =>
  firmwarePcrs.map(pcr => {
    const own = ofFirmware(events, pcr)
    const digests = own.map(event => event.sha256.toString('hex').slice(0, 8))
    const value = (pcr === programPcr ? replay(own) : values).get(pcr)
    return `${pcr} ${value?.toString('hex')} ${digests.slice(0, mostEvents).join(',')}`
  })

/** The firmware measures into it what it starts: the programs that svcd sends, whose digests it knows. */
const programPcr = 4

/** The events of a PCR that are the firmware's alone: of PCR 4 those up to its separator. */
function ofFirmware(events: readonly LogEvent[], of: number): readonly LogEvent[] {
  const own = extending(events, of)
  return of === programPcr ? own.slice(0, own.findIndex(isSeparator) + 1) : own
}

/** The firmware says so when it tries the next entry of its boot list, as often as it has to. */
const tries = ['Calling', 'Returning'].map(verb =>
  hash('sha256', `${verb}${verb === 'Calling' ? '' : ' from'} EFI Application from Boot Option`)
)

/** The events of programs that firmware, shim and GRUB started, without immediate repetitions. */
export function programEvents(events: readonly LogEvent[]): readonly LogEvent[] {
  const all = extending(events, programPcr)
  const own = all.slice(ofFirmware(events, programPcr).length)
  return own
    .filter(event => !tries.includes(event.sha256.toString('hex')))
    .filter(({ sha256: digest }, i, those) => i === 0 || !those[i - 1]?.sha256.equals(digest))
}

/** Names an event: by its text, if its digest is one of it, else by its type and its digest. */
export function describeEvent(event: LogEvent): string {
  const text = textOf(event)
  return text !== '' && isVouched(event)
    ? JSON.stringify(text.slice(0, 200))
    : `type 0x${event.type.toString(16)}, sha256 ${event.sha256.toString('hex').slice(0, 16)}…`
}

const pcrOf = (line: string) => line.split(' ', 1)[0]
const digestOf = (line: string) => line.split(' ', 2)[1]

/** Adds values to those that are accepted. */
export function withAccepted(
  doc: FirmwareDoc | undefined,
  firmware: Firmware,
  lines: readonly string[]
): FirmwareDoc {
  const old = doc?.pcrs ?? []
  const added = lines.filter(
    line => !old.some(one => pcrOf(one) === pcrOf(line) && digestOf(one) === digestOf(line))
  )
  const pcrs = firmwarePcrs.flatMap(pcr =>
    [...old, ...added].filter(line => pcrOf(line) === String(pcr)).slice(-mostValues)
  )
  return { name: firmwareName(firmware), ...firmware, pcrs }
}

/** Returns which PCR differs from the accepted values, and its first event that does; undefined if none. */
export function firmwareFault(
  { pcrs = [] }: FirmwareDoc,
  lines: readonly string[],
  events: readonly LogEvent[]
): string | undefined {
  for (const line of lines) {
    const known = pcrs.filter(one => pcrOf(one) === pcrOf(line))
    if (known.some(one => digestOf(one) === digestOf(line))) continue
    const own = ofFirmware(events, Number(pcrOf(line)))
    const wanted = known.at(-1)?.split(' ')[2]?.split(',') ?? []
    const at = own.findIndex((event, i) => event.sha256.toString('hex').slice(0, 8) !== wanted[i])
    const event = own[at]
    const what = event
      ? `at its event ${at + 1} (${describeEvent(event)})`
      : 'as events are missing at its end'
    return `PCR ${pcrOf(line)} differs from what was accepted for this firmware, ${what}`
  }
  return undefined
}
