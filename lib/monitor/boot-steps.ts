import { clip } from '../base/log.js'
import type { FileDelivery } from '../base/request-source.js'

/** The steps that svcd sees, with their meanings; `about` is the subject of a step. */
export const stepMeanings = {
  menu: 'the machine asked for the menu',
  script: 'it got the boot script; about: kernel, initramfs, image',
  'no-script':
    'it asked for the boot script, which says why it cannot boot, or could not be made; about: the reason',
  disk: 'it was told to boot from its disk',
  bmc: "a machine asked for a boot script with the MAC of the node's BMC; about: that MAC",
  kernel: 'it asked for the kernel; about: the file',
  initramfs: 'it asked for the initramfs; about: the file',
  file: 'it asked for another boot file; about: the file',
  'no-file': 'it asked for a boot file that is not served; about: the file',
  install: 'it got the install script; about: image, tag and packed image',
  kickstart: 'it got the kickstart, preseed or autoinstall; about: image, tag and packed image',
  refused: 'its install script was asked for and refused; about: the reason',
  report: 'it reported a state; about: the state',
  image: 'it asked for a packed image over http; about: the file',
  torrent:
    'it asked for a torrent file: the image itself then comes from other nodes, which svcd does not see',
  running: 'the installed system was up; about: the packed image that it runs'
} as const

/** Prefix of the reason of a `no-script` caused by a template. */
export const renderFailurePrefix = 'its boot script cannot be rendered'
/** Prefix of the reason when a tag lacks a file, and a part of it when a packed image lacks one. */
export const tagReasonPrefix = 'tag '
export const packLacks = 'is packed, and '

/** Whether a rescue system is ready in memory; this says nothing about the node's disk (rules 6.15). */
export const isRescue = (state: string): boolean => /^installer\.completed: rescue\b/.test(state)

export type StepName = keyof typeof stepMeanings

/** A pack that a node runs, or was assigned to install. */
export interface Pack {
  readonly osimage: string
  readonly osimagetag: string
  readonly pack: string
  /** Checksum; '' if unknown. */
  readonly sha256: string
}

/** A step that svcd saw. The same step in the same boot is counted, not added again. */
export interface Step extends Partial<FileDelivery> {
  readonly step: StepName
  readonly about: string
  from: string
  /** First and last time it was seen, in milliseconds since 1970. */
  readonly time: number
  last: number
  count: number
}

export interface Boot {
  /** Milliseconds since 1970; unique among the boots of a node. */
  readonly began: number
  readonly from: string
  readonly steps: Step[]
  last: number
  omitted: number
  /** Whether a step came with the node's token, or from an address that only the node has. */
  proven: boolean
  /** Whether the kernel was started: a request for a boot script after that begins a new boot. */
  started: boolean
  given: Pack | undefined
}

/** A past boot, encoded as text to save memory. */
export interface EncodedBoot {
  readonly proven: boolean
  readonly text: string
}

/** Characters of a step's text, and steps of a boot; when there are more, steps in the middle are dropped. */
const longestAbout = 300
const mostSteps = 48
const keptFirst = 12
/** Characters of all texts of a boot. */
const mostCharacters = 4096

const bootStartSteps: ReadonlySet<StepName> = new Set(['menu', 'script', 'no-script', 'disk'])
/** Steps of a started kernel. */
export const kernelSteps: readonly StepName[] = [
  'install',
  'kickstart',
  'report',
  'image',
  'torrent',
  'running'
]

/** Returns a boot that begins now. */
export const newBoot = (now: number, from: string): Boot => ({
  began: now,
  from,
  steps: [],
  last: now,
  omitted: 0,
  proven: false,
  started: false,
  given: undefined
})

/** Whether a step shows that the machine was restarted since `boot`. */
export function startsNewBoot(step: StepName, boot: Boot, now: number, pauseMs: number): boolean {
  if (step === 'running') return boot.steps.some(({ step }) => step === 'running') && now > boot.began
  if (!bootStartSteps.has(step) || now <= boot.began) return false
  return boot.started || now - boot.last > pauseMs
}

/** Finds a step by name, subject, and source address if given. */
export function findStep(
  steps: readonly Step[],
  step: StepName,
  about: string,
  from?: string
): Step | undefined {
  // A loop, not a closure: thousands of machines ask at once.
  for (const each of steps)
    if (each.step === step && (from === undefined || each.from === from) && each.about === about) return each
  return undefined
}

/** Returns a step seen for the first time. */
export const newStep = (step: StepName, about: string, from: string, now: number): Step => ({
  ...{ step, about, from, time: now, last: now, count: 1 }
})

/** Cuts a text to the length that a step keeps. */
export const clipped = (about: string) => clip(about, longestAbout)

/** Adds a step to a boot, and drops steps beyond the bounds. */
export function addStep(boot: Boot, step: Step): void {
  const { steps } = boot
  steps.push(step)
  if (kernelSteps.includes(step.step)) boot.started = true
  const characters = () => steps.reduce((sum, { about }) => sum + about.length, 0)
  while (steps.length > mostSteps || (steps.length > keptFirst + 1 && characters() > mostCharacters)) {
    steps.splice(keptFirst, 1)
    boot.omitted++
  }
}

/** A step in compact form; `from` is empty where it equals that of the boot. */
type Row = [
  ...[step: StepName, about: string, from: string, time: number, last?: number, count?: number],
  ...[end?: FileDelivery['end'], bytes?: number, of?: number]
]

/** Encodes a boot as text. */
export function encode({ began, from, steps, omitted, proven, started, given }: Boot): string {
  const rows = steps.map(({ step, about, from: by, time, last, count, end, bytes = 0, bytesTotal = 0 }) => {
    const row: Row = [step, about, by === from ? '' : by, time - began]
    if (count > 1 || end !== undefined) row.push(last - began, count)
    if (end !== undefined) row.push(end, bytes, bytesTotal)
    return row
  })
  return JSON.stringify([began, from, omitted, proven, started, given ?? null, rows])
}

/** Decodes a text made by `encode`. */
export function decode(text: string): Boot {
  const [began, from, omitted, proven, started, given, rows] = JSON.parse(text) as [
    number,
    string,
    number,
    boolean,
    boolean,
    Pack | null,
    Row[]
  ]
  const steps = rows.map(
    ([step, about, by, time, last = time, count = 1, end, bytes, of]): Step => ({
      step,
      about,
      from: by === '' ? from : by,
      time: began + time,
      last: began + last,
      count,
      ...(end === undefined ? {} : { end, bytes: bytes ?? 0, bytesTotal: of ?? 0 })
    })
  )
  const last = steps.reduce((newest, { last }) => Math.max(newest, last), began)
  return { began, from, steps, last, omitted, proven, started, given: given ?? undefined }
}
