import type { Sent } from '../source.js'

/** The steps that svcd sees, each with what it means; `about` is what the step was about. */
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
  kickstart: 'it got the kickstart; about: image, tag and packed image',
  refused: 'its install script was asked for and refused; about: the reason',
  report: 'it reported a state; about: the state',
  image: 'it asked for a packed image over http; about: the file',
  torrent:
    'it asked for a torrent file: the image itself then comes from other nodes, which svcd does not see',
  running: 'the installed system was up; about: the packed image that it runs'
} as const

/** How the reason of a `no-script` begins when a template is at fault. */
export const notRendered = 'its boot script cannot be rendered'
/** How it begins when a tag lacks a file, and what it holds when a packed image lacks one. */
export const ofTag = 'tag '
export const packedWithout = 'is packed, and '

/** Whether a state says that a system is ready in memory for a rescue: it is not what the node has on its disk (rules 6.15). */
export const isRescue = (state: string): boolean => /^installer\.completed: rescue\b/.test(state)

export type StepName = keyof typeof stepMeanings

/** Which pack a node was given to install, or runs. */
export interface Pack {
  readonly osimage: string
  readonly osimagetag: string
  /** The packed image's file. */
  readonly pack: string
  /** Its checksum, '' when not known. */
  readonly sha256: string
}

/** What svcd saw of a node. A step that is seen again in the same boot is counted. */
export interface Step extends Partial<Sent> {
  readonly step: StepName
  readonly about: string
  /** The address that asked. */
  from: string
  /** When it was first seen, and when last; milliseconds since 1970. */
  readonly time: number
  last: number
  count: number
}

/** One boot of a node, as svcd saw it. */
export interface Boot {
  /** Milliseconds since 1970; no two boots of a node have the same. */
  readonly began: number
  /** The address of the first step. */
  readonly from: string
  readonly steps: Step[]
  /** When the last step was seen. */
  last: number
  /** Steps that were left out, because there were too many. */
  omitted: number
  /** A step came from an address that is the node's alone, or with its token. */
  proven: boolean
  /** The kernel was started: who asks for a script now has been started anew. */
  started: boolean
  /** What it was given to install. */
  given: Pack | undefined
}

/** A boot that is over: as text, because there are many. */
export interface Packed {
  readonly proven: boolean
  readonly text: string
}

/** A step's text has so many characters at most, and a boot so many steps; the first ones and the last ones are kept. */
const longestAbout = 300
const mostSteps = 48
const keptFirst = 12
/** The characters of all texts of a boot together. */
const mostCharacters = 4096

const begins: ReadonlySet<StepName> = new Set(['menu', 'script', 'no-script', 'disk'])
const starts: ReadonlySet<StepName> = new Set([
  'install',
  'kickstart',
  'report',
  'image',
  'torrent',
  'running'
])

/** A boot that begins now. */
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

/** Whether a step shows that the machine was started anew since `boot`. */
export function beganBy(step: StepName, boot: Boot, now: number, pauseMs: number): boolean {
  if (step === 'running') return boot.steps.some(({ step }) => step === 'running') && now > boot.began
  if (!begins.has(step) || now <= boot.began) return false
  return boot.started || now - boot.last > pauseMs
}

/** The step of that name, about the same, and from the same address where one is given; undefined for none. */
export function sameStep(
  steps: readonly Step[],
  step: StepName,
  about: string,
  from?: string
): Step | undefined {
  // No closure: machines ask in thousands.
  for (const each of steps)
    if (each.step === step && (from === undefined || each.from === from) && each.about === about) return each
  return undefined
}

/** A step that is seen for the first time. */
export const newStep = (step: StepName, about: string, from: string, now: number): Step => ({
  ...{ step, about, from, time: now, last: now, count: 1 }
})

/** A text as a step keeps it. */
export const clipped = (about: string) =>
  about.length > longestAbout ? `${about.slice(0, longestAbout)}…` : about

/** Adds a step to a boot, and keeps it within its bounds. */
export function addStep(boot: Boot, step: Step): void {
  const { steps } = boot
  steps.push(step)
  if (starts.has(step.step)) boot.started = true
  const characters = () => steps.reduce((sum, { about }) => sum + about.length, 0)
  while (steps.length > mostSteps || (steps.length > keptFirst + 1 && characters() > mostCharacters)) {
    steps.splice(keptFirst, 1)
    boot.omitted++
  }
}

/** A step in few characters: an address is left out where it is that of the boot. */
type Row = [
  step: StepName,
  about: string,
  from: string,
  time: number,
  ...(
    | []
    | [last: number, count: number]
    | [last: number, count: number, end: Sent['end'], bytes: number, of: number]
  )
]

/** A boot as text. */
export function encode({ began, from, steps, omitted, proven, started, given }: Boot): string {
  const rows = steps.map(
    ({ step, about, from: by, time, last, count, end, bytes, of }): Row => [
      step,
      about,
      by === from ? '' : by,
      time - began,
      ...(end !== undefined
        ? ([last - began, count, end, bytes ?? 0, of ?? 0] as [number, number, Sent['end'], number, number])
        : count > 1
          ? ([last - began, count] as [number, number])
          : ([] as []))
    ]
  )
  return JSON.stringify([began, from, omitted, proven, started, given ?? null, rows])
}

/** The boot that `encode` made a text of. */
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
      ...(end === undefined ? {} : { end, bytes: bytes ?? 0, of: of ?? 0 })
    })
  )
  const last = steps.reduce((newest, { last }) => Math.max(newest, last), began)
  return { began, from, steps, last, omitted, proven, started, given: given ?? undefined }
}
