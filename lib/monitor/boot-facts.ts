import { type Boot, clipped, kernelSteps, type Pack, type Step, type StepName } from './boot-steps.js'
import type { Running } from './boots.js'
import { withoutOutput } from './node-status.js'

/** Input of all verdicts. Times are milliseconds since 1970. */
export interface Facts {
  readonly node: string
  readonly now: number
  /** MACs of the interfaces that the node boots from. */
  readonly macs: readonly string[]
  /** Fixed address on the provisioning interface. */
  readonly address: string | undefined
  /** The current boot, and steps from addresses that are not the node's. */
  readonly boot: Boot | undefined
  /** The last boot in which the node reported with its token. */
  readonly reportedBoot: Boot | undefined
  readonly foreignSteps: readonly Step[]
  readonly state?: string | null
  /** State of the last failed installation, with its output. */
  readonly failure?: string | undefined
  /** Returns why the node would get no boot script now. */
  readonly obstacle: () => string | undefined
  readonly running: Running | undefined
  /** The pack that the node would install now. */
  readonly wouldInstall: Pack | undefined
  /** Whether the node boots from the network, not from its disk. */
  readonly netboot: boolean
  /** The verdict on its last quote; undefined without one, or if none is asked for. */
  readonly trust?: { readonly verdict: string; readonly reason: string; readonly time: string } | undefined
  /** Whether it gets no install script without a good one. */
  readonly needsTrust?: boolean
  /** When svcd last switched the machine on; undefined if it did not since its own start. */
  readonly switchedOn?: number | undefined
  /** Sentence on a kernel without a signature that it would get by GRUB. */
  readonly unsignedKernel?: string | undefined
  /** Sentence on a root that its pack lacks. */
  readonly lackingRoot?: string | undefined
  /** Machines with unknown MACs that asked for a boot script in the node's network, newest last. */
  readonly unknownMachines: readonly { readonly mac: string; readonly from: string; readonly last: number }[]
  /** Number of other nodes that were never seen; counted only if this node was never seen either. */
  readonly neverSeenCount: number
  /** Address that the DHCP server leased to one of the node's MACs. */
  readonly leased: string | undefined
  /** Faults of the tracker and of svcd's own disk; '' for none. */
  readonly trackerProblem: string
  readonly diskProblem: string
  /** The last lines of its console, without control characters, the oldest first. */
  readonly consoleLines: readonly { readonly time: number | undefined; readonly text: string }[]
}

const secondMs = 1000
const minuteMs = 60_000
/** Longest time from the initramfs to the request for the install script: large machines start slowly. */
export const kernelMs = 90 * secondMs
/** Longest pause between two requests of iPXE or of the install script. */
export const nextMs = minuteMs
/** Longest time of one installation step, or of the start of the installed system. */
export const stepMs = 5 * minuteMs
export const bootMs = 15 * minuteMs

/** Formats a time for a verdict. */
export const formatTime = (ms: number) => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`
/** Tells when a step was last seen, and how often. */
export const seenAt = ({ last, count }: Pick<Step, 'last' | 'count'>) =>
  `${formatTime(last)}${count === 1 ? '' : ` (${count} times)`}`

/** Returns the step with one of these names that was seen last. */
export const newest = (steps: readonly Step[] | undefined, ...names: readonly StepName[]): Step | undefined =>
  steps
    ?.filter(({ step }) => names.includes(step))
    .reduce<Step | undefined>((last, step) => (last && last.last > step.last ? last : step), undefined)
/** Time at which a step was last seen; 0 if never. */
export const timeOf = (step: Step | undefined) => step?.last ?? 0
/** Time at which any step of the current boot was last seen; 0 if never. */
export const lastSeen = ({ boot }: Facts) => Math.max(0, ...(boot?.steps.map(({ last }) => last) ?? []))
/** Returns the last step with one of these names, unless the booted kernel was seen after it. */
export const lastBeforeKernel = ({ boot }: Facts, ...names: readonly StepName[]) => {
  const step = newest(boot?.steps, ...names)
  return step && timeOf(newest(boot?.steps, 'refused', ...kernelSteps)) < step.last ? step : undefined
}
/** Returns the step that says why the node cannot boot, if no other boot script was sent after it. */
export const noScript = (facts: Facts) => {
  const told = lastBeforeKernel(facts, 'no-script')
  return told === newest(facts.boot?.steps, 'script', 'no-script', 'disk') ? told : undefined
}
/** End of a verdict whose cause is gone. */
export const causeGone = ' (this is mended now)'
/** Returns a suffix for a verdict: the cause `about` is gone, or has been replaced by another. */
export function causeSuffix({ obstacle }: Facts, about: string): string {
  const now = obstacle()
  if (now === undefined) return causeGone
  return clipped(now) === about ? '' : ` (the reason is another now: ${clipped(now)})`
}
/** Returns the verdict for a node whose boot script reports an obstacle that `fits`; undefined for none. */
export function cannotBoot(facts: Facts, fits: (about: string) => boolean): string | undefined {
  const told = noScript(facts)
  return told && fits(told.about)
    ? `${facts.node} asked for its boot script at ${seenAt(told)} and cannot boot: ` +
        `${told.about}${causeSuffix(facts, told.about)}`
    : undefined
}
const report = ({ boot }: Facts, pattern: RegExp) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'report' && pattern.test(about)),
    'report'
  )

/** Returns the last failed installation with its step and reason, unless a later one was completed. */
export function failure(facts: Facts): { step: Step; name: string; reason: string } | undefined {
  const step = report(facts, /^installer\.failed\b/)
  if (!step || timeOf(report(facts, /^installer\.completed\b/)) > step.last) return undefined
  const [, name = 'unknown', reason = ''] = /^installer\.failed: *([\w-]*):? *(.*)/s.exec(step.about) ?? []
  return { step, name, reason }
}

/** Returns the verdict for a failed installation whose reason matches `pattern`; undefined for none. */
export const failed = (facts: Facts, pattern: RegExp): string | undefined => {
  const found = failure(facts)
  if (!found || !pattern.test(found.reason)) return undefined
  const { step, name } = found
  const whole = facts.failure && clipped(withoutOutput(facts.failure)) === step.about
  const reason = whole ? (facts.failure ?? '').replace(/^installer\.failed: *[\w-]*:? */, '') : found.reason
  return (
    `the installation of ${facts.node} failed in step ${name} at ${seenAt(step)}: ` +
    (reason || 'no reason was reported')
  )
}

const differing = (a: string, b: string) => [...a].filter((digit, i) => digit !== b[i]).length

/**
 * Returns the unknown machine that may be this node, if that is not up and reported no failure. MACs within a
 * rack are similar, so similar MACs count only for a node that was never seen with its own.
 */
export function candidateMachine(facts: Facts): Facts['unknownMachines'][number] | undefined {
  const { macs, unknownMachines, boot, address, now } = facts
  const since = unknownMachines.filter(({ last }) => last > lastSeen(facts))
  if (!boot)
    return (
      since.findLast(({ mac }) => macs.some(own => differing(own, mac) <= 2)) ??
      since.findLast(({ from }) => from === address) ??
      since.at(-1)
    )
  if (isUp(facts) || failure(facts) || now - lastSeen(facts) <= stepMs) return undefined
  return since.findLast(({ from }) => from === address || from === boot.from)
}

/** Returns the refused request for an install script that probably came from this node. */
export function refusal(facts: Facts): Step | undefined {
  const { boot, foreignSteps, now } = facts
  const script = timeOf(newest(boot?.steps, 'script', 'kernel'))
  const served = timeOf(newest(boot?.steps, ...kernelSteps))
  if (served > 0 && served >= script) return undefined
  // A refusal to the address that booted counts until the node gets its script.
  const own = newest(boot?.steps, 'refused')
  if (own && own.last >= script) return own
  // Another address may be a stranger's: it counts if it asked for the boot script, or the node is silent.
  const other = newest(foreignSteps, 'refused')
  if (!other || other.last < script) return undefined
  const asked = foreignSteps.some(({ step, from }) => step === 'script' && from === other.from)
  return asked || now - lastSeen(facts) > kernelMs ? other : undefined
}

/** Returns the last report of the installer or of the installed system. */
export const lastReport = ({ boot }: Facts) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'running' || /^installer\./.test(about)),
    'running',
    'report'
  )
/** Returns the report of a completed installation. */
export const installed = (facts: Facts) => report(facts, /^installer\.completed\b/)
/** Whether the last report says that the node was installed or that its system is up. */
export const isUp = (facts: Facts) => {
  const last = lastReport(facts)
  return last !== undefined && (last.step === 'running' || last === installed(facts))
}
/** Returns the sentence on what the node runs and what it would get now. */
export const runs = ({ node, running, wouldInstall, netboot }: Facts) =>
  running &&
  `${node} runs ${running.pack}${running.osimage === '' ? '' : ` of OS image ${running.osimage}`} ` +
    `since ${formatTime(running.since)}, and would get ` +
    `${wouldInstall ? `${wouldInstall.pack} of OS image ${wouldInstall.osimage}` : 'no image'} ${
      netboot
        ? 'now'
        : `if it were installed again: it boots from its disk, so type svcctl node reinstall ${node} first`
    }`

/** Words of firmware, boot loaders, kernels and initramfs that say why a machine stands still. */
const telling = new RegExp(
  [
    'Kernel panic|not syncing|Unable to mount root|Cannot open root device|Out of memory: Kill',
    'no boot(?:able)? (?:device|disk|medi(?:a|um))|boot failed|Operating System not found',
    String.raw`Missing operating system|PXE-[EMT]\d+|\(https?:\/\/ipxe\.org\/[0-9a-f]+\)`,
    'No more network devices',
    String.raw`root password for maintenance|in emergency mode|emergency shell|^\(initramfs\)|^dracut:\/#`,
    'ALERT! .* does not exist|grub rescue>'
  ].join('|'),
  'i'
)
const mostQuoted = 3
const longestQuoted = 200

/** Returns what the console says of a boot that stands still, for the end of a verdict; "" for nothing. */
export function consoleQuote(facts: Facts): string {
  // Lines from before the boot, or before the report that it is up, explain nothing.
  const since = Math.max(facts.boot?.began ?? 0, isUp(facts) ? lastSeen(facts) : 0)
  const lines = facts.consoleLines.filter(
    ({ time, text }) => time !== undefined && time + secondMs > since && telling.test(text)
  )
  const texts = [...new Set(lines.map(({ text }) => text.slice(0, longestQuoted).trim()))].slice(-mostQuoted)
  const last = lines.at(-1)?.time
  if (last === undefined) return ''
  return `. Its console says at ${formatTime(last)}: ${texts.map(text => JSON.stringify(text)).join(', ')}`
}

/** Describes the last step in words. */
export function describeLastStep({ boot }: Facts): string {
  const last = boot?.steps.reduce((a, b) => (b.last >= a.last ? b : a))
  return last ? stepTexts[last.step].replace('ABOUT', () => last.about) : 'was never seen'
}

/** The text for each step; ABOUT is replaced by the subject of the step. */
const stepTexts: Readonly<Record<StepName, string>> = {
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
