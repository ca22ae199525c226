import { type Boot, clipped, type Pack, type Step, type StepName } from './boot-steps.js'
import type { Running } from './boots.js'
import { withoutOutput } from './node-status.js'

/** All that a verdict goes by. Times are milliseconds since 1970. */
export interface Facts {
  readonly node: string
  readonly now: number
  /** MACs of the node's interfaces that boot. */
  readonly macs: readonly string[]
  /** Its fixed address on the interface over which it is provisioned. */
  readonly address: string | undefined
  /** The present boot, and the steps from addresses that are not the node's. */
  readonly boot: Boot | undefined
  /** The last boot in which the node reported with its token. */
  readonly told: Boot | undefined
  readonly elsewhere: readonly Step[]
  /** Its last state. */
  readonly state?: string | null
  /** The state in which its last installation failed, with what was printed then. */
  readonly failure?: string | undefined
  /** Why it would get no boot script now. */
  readonly obstacle: () => string | undefined
  readonly running: Running | undefined
  /** What it would install now. */
  readonly would: Pack | undefined
  /** Whether it boots from the network, or from its disk. */
  readonly netboot: boolean
  /** Machines with unknown MACs in its network that asked for a boot script, the newest last. */
  readonly strangers: readonly { readonly mac: string; readonly from: string; readonly last: number }[]
  /** How many other nodes nothing was seen of; counted only where nothing was seen of this one. */
  readonly unseen: number
  /** The address that the DHCP server lent to one of its MACs. */
  readonly leased: string | undefined
  /** What is wrong with the tracker, and with svcd's own disk; '' for nothing. */
  readonly tracker: string
  readonly disk: string
}

const secondMs = 1000
const minuteMs = 60_000
/** From the initramfs to the request for the install script: starting a large machine's kernel takes its time. */
export const kernelMs = 90 * secondMs
/** iPXE, and the install script, go on within this time. */
export const nextMs = minuteMs
/** One step of an installation, or the start of the installed system, may take so long. */
export const stepMs = 5 * minuteMs
/** A whole boot. */
export const bootMs = 15 * minuteMs

/** A time as a verdict tells it. */
export const at = (ms: number) => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`
/** How often, where it was more than once. */
export const times = (count: number) => (count === 1 ? '' : ` (${count} times)`)

const progress: readonly StepName[] = [
  'install',
  'kickstart',
  'refused',
  'report',
  'image',
  'torrent',
  'running'
]

/** The step of these names that was seen last. */
export const newest = (steps: readonly Step[] | undefined, ...names: readonly StepName[]): Step | undefined =>
  steps
    ?.filter(({ step }) => names.includes(step))
    .reduce<Step | undefined>((last, step) => (last && last.last > step.last ? last : step), undefined)
/** When it was seen last; 0 for never. */
export const timeOf = (step: Step | undefined) => step?.last ?? 0
/** When any step of the present boot was seen last; 0 for never. */
export const lastSeen = ({ boot }: Facts) => Math.max(0, ...(boot?.steps.map(({ last }) => last) ?? []))
/** The step of these names that was seen last, unless the kernel's own side was seen after it. */
export const beforeKernel = ({ boot }: Facts, ...names: readonly StepName[]) => {
  const step = newest(boot?.steps, ...names)
  return step && timeOf(newest(boot?.steps, ...progress)) < step.last ? step : undefined
}
/** The step that says why the node cannot boot, where it is the last word on its boot script. */
export const noScript = (facts: Facts) => {
  const told = beforeKernel(facts, 'no-script')
  return told === newest(facts.boot?.steps, 'script', 'no-script', 'disk') ? told : undefined
}
/** How a verdict ends when what stopped the boot would stop it no more. */
export const putRight = ' (that is put right by now)'
/** What a verdict adds where what stopped a boot (`about`) would stop it no more, or something else would. */
export function since({ obstacle }: Facts, about: string): string {
  const now = obstacle()
  if (now === undefined) return putRight
  return clipped(now) === about ? '' : ` (by now the reason is another: ${clipped(now)})`
}
/** The sentence on a node whose boot script says why it cannot boot, where the reason fits; undefined for none. */
export function cannotBoot(facts: Facts, fits: (about: string) => boolean): string | undefined {
  const told = noScript(facts)
  return told && fits(told.about)
    ? `${facts.node} asked for its boot script at ${at(told.last)}${times(told.count)} and cannot boot: ${told.about}${since(facts, told.about)}`
    : undefined
}
const report = ({ boot }: Facts, pattern: RegExp) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'report' && pattern.test(about)),
    'report'
  )

/** The last failed installation, unless one was completed after it; with the failed step and the reason. */
export function failure(facts: Facts): { step: Step; name: string; reason: string } | undefined {
  const step = report(facts, /^installer\.failed\b/)
  if (!step || timeOf(report(facts, /^installer\.completed\b/)) > step.last) return undefined
  const [, name = 'unknown', reason = ''] = /^installer\.failed: *([\w-]*):? *(.*)/s.exec(step.about) ?? []
  return { step, name, reason }
}

/** The sentence on a failed installation whose reason fits; undefined for none. */
export const failed = (facts: Facts, pattern: RegExp): string | undefined => {
  const found = failure(facts)
  if (!found || !pattern.test(found.reason)) return undefined
  const { step, name } = found
  const whole = facts.failure && clipped(withoutOutput(facts.failure)) === step.about
  const reason = whole ? (facts.failure ?? '').replace(/^installer\.failed: *[\w-]*:? */, '') : found.reason
  return `the installation of ${facts.node} failed in step ${name} at ${at(step.last)}${times(step.count)}: ${reason || 'no reason was reported'}`
}

/** Hexadecimal digits in which two MACs differ. */
const differing = (a: string, b: string) => [...a].filter((digit, i) => digit !== b[i]).length

/**
 * The unknown machine that may be this node. The MACs of a rack are much alike, so a MAC tells nothing of a node that was
 * seen with its own; and a node that is up, or that says what failed, is not looked for.
 */
export function impostor(facts: Facts): Facts['strangers'][number] | undefined {
  const { macs, strangers, boot, address, now } = facts
  const since = strangers.filter(({ last }) => last > lastSeen(facts))
  if (!boot)
    return (
      since.findLast(({ mac }) => macs.some(own => differing(own, mac) <= 2)) ??
      since.findLast(({ from }) => from === address) ??
      since.at(-1)
    )
  if (isUp(facts) || failure(facts) || now - lastSeen(facts) <= stepMs) return undefined
  return since.findLast(({ from }) => from === address || from === boot.from)
}

/**
 * The refusal of an install script that tells of this node. One to the address that the boot came from does, until the
 * node got its install script; any other may be a stranger's, and tells of the node only if the machine there also asked
 * for its boot script, or if the node itself went silent.
 */
export function refusal(facts: Facts): Step | undefined {
  const { boot, elsewhere, now } = facts
  const script = timeOf(newest(boot?.steps, 'script', 'kernel'))
  const served = timeOf(newest(boot?.steps, ...progress.filter(step => step !== 'refused')))
  if (served > 0 && served >= script) return undefined
  const own = newest(boot?.steps, 'refused')
  if (own && own.last >= script) return own
  const other = newest(elsewhere, 'refused')
  if (!other || other.last < script) return undefined
  const asked = elsewhere.some(({ step, from }) => step === 'script' && from === other.from)
  return asked || now - lastSeen(facts) > kernelMs ? other : undefined
}

/** The last sign of the installation, or of the installed system. */
export const sign = ({ boot }: Facts) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'running' || /^installer\./.test(about)),
    'running',
    'report'
  )
/** The report of a completed installation. */
export const installed = (facts: Facts) => report(facts, /^installer\.completed\b/)
/** The node was installed or its system reported, and nothing was reported after that. */
export const isUp = (facts: Facts) => {
  const last = sign(facts)
  return last !== undefined && (last.step === 'running' || last === installed(facts))
}
/** The sentence on what the node runs and what it would get now. */
export const runs = ({ node, running, would, netboot }: Facts) =>
  running &&
  `${node} runs ${running.pack}${running.osimage === '' ? '' : ` of OS image ${running.osimage}`} since ${at(running.since)}, and would get ${would ? `${would.pack} of OS image ${would.osimage}` : 'no image'} ${netboot ? 'now' : `if it were installed again: it boots from its disk, so type svcctl node reinstall ${node} first`}`

/** What the last step was, in words. */
export function doing({ boot }: Facts): string {
  const last = boot?.steps.reduce((a, b) => (b.last >= a.last ? b : a))
  return last ? deeds[last.step].replace('ABOUT', () => last.about) : 'was never seen'
}

/** What a node did in a step; ABOUT stands for what the step was about. */
const deeds: Readonly<Record<StepName, string>> = {
  menu: 'asked for the menu',
  script: 'got its boot script',
  'no-script': 'asked for its boot script and got none: ABOUT',
  disk: 'was told to boot from its disk',
  bmc: 'asked for a boot script with the MAC ABOUT of its BMC',
  kernel: 'asked for the kernel ABOUT',
  initramfs: 'asked for the initramfs ABOUT',
  file: 'asked for the boot file ABOUT',
  'no-file': 'asked for a boot file that is not served: ABOUT',
  install: 'got its install script',
  kickstart: 'got its kickstart',
  refused: 'was refused its install script: ABOUT',
  report: 'reported the state ABOUT',
  image: 'asked for the packed image ABOUT',
  torrent: 'asked for the torrent of its image',
  running: 'reported that its system is up'
}
