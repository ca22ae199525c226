import { type Boot, type Pack, type Step, type StepName, stepMeanings } from './boot-steps.js'
import type { Running } from './boots.js'
import { isStale } from './stale.js'

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
  readonly elsewhere: readonly Step[]
  /** Why it would get no boot script now. */
  readonly obstacle: string | undefined
  readonly running: Running | undefined
  /** What it would install now. */
  readonly would: Pack | undefined
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

/** A rule of the table: what svcd saw, and what to do about it. */
export interface Why {
  /** Its section in docs/troubleshooting.md. */
  readonly id: string
  /** For the documents: what svcd saw. */
  readonly saw: string
  /** What to do; '' for nothing. */
  readonly remedy: string
  /** What was seen of this node, when the rule applies. */
  readonly verdict: (facts: Facts) => string | undefined
}

const secondMs = 1000
const minuteMs = 60_000
/** From the initramfs to the request for the install script: starting a large machine's kernel takes its time. */
const kernelMs = 90 * secondMs
/** iPXE, and the install script, go on within this time. */
const nextMs = minuteMs
/** One step of an installation, or the start of the installed system, may take so long. */
const stepMs = 5 * minuteMs
/** A whole boot. */
const bootMs = 15 * minuteMs

const at = (ms: number) => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`
const times = (count: number) => (count === 1 ? '' : ` (${count} times)`)

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
const newest = (steps: readonly Step[] | undefined, ...names: readonly StepName[]): Step | undefined =>
  steps
    ?.filter(({ step }) => names.includes(step))
    .reduce<Step | undefined>((last, step) => (last && last.last > step.last ? last : step), undefined)
const timeOf = (step: Step | undefined) => step?.last ?? 0
const lastSeen = ({ boot }: Facts) => Math.max(0, ...(boot?.steps.map(({ last }) => last) ?? []))
/** The step of these names that was seen last, unless the kernel's own side was seen after it. */
const beforeKernel = ({ boot }: Facts, ...names: readonly StepName[]) => {
  const step = newest(boot?.steps, ...names)
  return step && timeOf(newest(boot?.steps, ...progress)) < step.last ? step : undefined
}
const report = ({ boot }: Facts, pattern: RegExp) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'report' && pattern.test(about)),
    'report'
  )

/** The last failed installation, unless one was completed after it; with the failed step and the reason. */
function failure(facts: Facts): { step: Step; name: string; reason: string } | undefined {
  const step = report(facts, /^installer\.failed\b/)
  if (!step || timeOf(report(facts, /^installer\.completed\b/)) > step.last) return undefined
  const [, name = 'unknown', reason = ''] = /^installer\.failed: *([\w-]*):? *(.*)/s.exec(step.about) ?? []
  return { step, name, reason }
}

const failed = (facts: Facts, pattern: RegExp): string | undefined => {
  const found = failure(facts)
  if (!found || !pattern.test(found.reason)) return undefined
  const { step, name, reason } = found
  return `the installation of ${facts.node} failed in step ${name} at ${at(step.last)}${times(step.count)}: ${reason || 'no reason was reported'}`
}

/** Hexadecimal digits in which two MACs differ. */
const differing = (a: string, b: string) => [...a].filter((digit, i) => digit !== b[i]).length

/**
 * The unknown machine that may be this node. The MACs of a rack are much alike, so a MAC tells nothing of a node that was
 * seen with its own; and a node that is up, or that says what failed, is not looked for.
 */
function impostor(facts: Facts): Facts['strangers'][number] | undefined {
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
function refusal(facts: Facts): Step | undefined {
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
const sign = ({ boot }: Facts) =>
  newest(
    boot?.steps.filter(({ step, about }) => step === 'running' || /^installer\./.test(about)),
    'running',
    'report'
  )
const installed = (facts: Facts) => report(facts, /^installer\.completed\b/)
/** The node was installed or its system reported, and nothing was reported after that. */
const isUp = (facts: Facts) => {
  const last = sign(facts)
  return last !== undefined && (last.step === 'running' || last === installed(facts))
}
const runs = ({ node, running, would }: Facts) =>
  running &&
  `${node} runs ${running.pack}${running.osimage === '' ? '' : ` of OS image ${running.osimage}`} since ${at(running.since)}, and would get ${would ? `${would.pack} of OS image ${would.osimage}` : 'no image'} now`

/**
 * Why a node did not boot: the first rule that applies counts (rules 6.7). docs/troubleshooting.md has a section for each.
 */
export const whys: readonly Why[] = [
  {
    id: 'bmc-only',
    saw: "a machine asked for a boot script with the MAC of the node's BMC, and the node itself did not ask after that",
    remedy:
      'the BMC must not boot from the network; look whether the MACs of the node and of its BMC are mixed up',
    verdict: facts => {
      const bmc = newest(facts.elsewhere, 'bmc')
      return bmc && facts.elsewhere.every(({ last }) => last <= bmc.last) && bmc.last > lastSeen(facts)
        ? `only the BMC of ${facts.node} asked for a boot script, with the MAC ${bmc.about} from ${bmc.from} at ${at(bmc.last)}${times(bmc.count)}`
        : undefined
    }
  },
  {
    id: 'refused-address',
    saw: "the install script was asked for from an address that is not the node's, and refused, and the node itself did not get it",
    remedy:
      'give the node that address, or let it boot with its own; for nodes without a fixed address set [boot] dynamic_nodes = yes',
    verdict: facts => {
      const { node } = facts
      const refused = refusal(facts)
      return (
        refused &&
        `the install script of ${node} was refused to ${refused.from} at ${at(refused.last)}${times(refused.count)}: ${refused.from} is no address of ${node}`
      )
    }
  },
  {
    id: 'other-network',
    saw: "the boot script was asked for from an address outside the node's network, after all that was seen of the node itself",
    remedy: 'look which DHCP server answers on its wire, and whether the node stands in the right network',
    verdict: facts => {
      const asked = newest(facts.elsewhere, 'script', 'no-script', 'disk')
      return asked && asked.last > lastSeen(facts)
        ? `a machine with the MAC of ${facts.node} asked for its boot script from ${asked.from} at ${at(asked.last)}${times(asked.count)}, which is no address for it`
        : undefined
    }
  },
  {
    id: 'wrong-mac',
    saw: 'nothing was seen of the node, or its boot stopped short, and after that a machine with an unknown MAC asked: it may be the node',
    remedy: 'compare the MACs; if that machine is the node, post its MAC as "macaddr"',
    verdict: facts => {
      const machine = impostor(facts)
      if (!machine) return undefined
      const { node, macs, boot, unseen } = facts
      const since = boot ? ` after ${at(lastSeen(facts))}` : ''
      const others = unseen === 0 ? '' : `, or another of ${unseen + 1} nodes of which nothing was seen`
      return `no machine with the MAC of ${node} (${macs.join(', ') || 'none is known'}) asked for a boot script${since}, but one with the unknown MAC ${machine.mac} did, from ${machine.from} at ${at(machine.last)}: it may be ${node}${others}`
    }
  },
  {
    id: 'no-mac',
    saw: 'the node has no MAC, and never asked',
    remedy:
      'post "macaddr", choose the node in the menu at its console, or set switch and port for detection',
    verdict: ({ node, boot, macs }) =>
      boot || macs.length > 0 ? undefined : `${node} has no MAC, so no machine can be it`
  },
  {
    id: 'address-only',
    saw: "the DHCP server lent an address to the node's MAC, and no boot script was asked for",
    remedy: 'look at the console whether iPXE was loaded, and at [http] url whether the node can reach it',
    verdict: ({ node, boot, leased }) =>
      boot || leased === undefined
        ? undefined
        : `${node} got the address ${leased} by DHCP and then asked for no boot script`
  },
  {
    id: 'never-asked',
    saw: 'nothing was seen of the node since svcd keeps its boots',
    remedy:
      'look whether it has power, whether it boots from the network first, and whether its wire leads to the DHCP server',
    verdict: ({ node, boot, macs }) =>
      boot
        ? undefined
        : `no machine with the MAC of ${node} (${macs.join(', ')}) ever asked for a boot script`
  },
  {
    id: 'no-boot-file',
    saw: 'the machine got a boot script that says why it cannot boot, or a kernel or initramfs that is not there',
    remedy: 'pack the image, or give it files that are there; the node asks again by itself',
    verdict: facts => {
      const { node, obstacle } = facts
      const asked = newest(facts.boot?.steps, 'script', 'no-script', 'disk')
      const told = beforeKernel(facts, 'no-script')
      if (told && told === asked)
        return `${node} asked for its boot script at ${at(told.last)}${times(told.count)} and cannot boot: ${told.about}${obstacle === undefined ? ' (that is put right by now)' : ''}`
      const missing = beforeKernel(facts, 'kernel', 'initramfs', 'no-file')
      return missing && (missing.step === 'no-file' || missing.end === 'refused')
        ? `${node} asked for the file ${missing.about} at ${at(missing.last)}${times(missing.count)}, and it could not be sent`
        : undefined
    }
  },
  {
    id: 'cut',
    saw: 'the kernel or the initramfs was sent in part only',
    remedy:
      'the machine has too little memory for them, or its network loses the connection: watch the console',
    verdict: facts => {
      const file = beforeKernel(facts, 'kernel', 'initramfs')
      return file?.end === 'cut'
        ? `${facts.node} took ${file.bytes} of ${file.of} bytes of the ${file.step} ${file.about} at ${at(file.last)}${times(file.count)} and then hung up`
        : undefined
    }
  },
  {
    id: 'from-disk',
    saw: 'the machine was told to boot from its disk, and its system did not report',
    remedy: 'watch the console; a node that is to be installed needs "netboot": true',
    verdict: facts => {
      const { node, boot, now } = facts
      const disk = newest(boot?.steps, 'disk')
      return disk &&
        disk.last >= timeOf(newest(boot?.steps, 'script', 'running', 'report')) &&
        now - disk.last > stepMs
        ? `${node} was told to boot from its disk at ${at(disk.last)}${times(disk.count)}, and its system has not reported since`
        : undefined
    }
  },
  {
    id: 'fetched-nothing',
    saw: 'the machine got its boot script, and did not fetch the kernel or the initramfs',
    remedy: 'watch the console; look whether the node can reach the address in [http] url',
    verdict: facts => {
      const { node, now } = facts
      const script = beforeKernel(facts, 'script', 'kernel')
      const initramfs = beforeKernel(facts, 'initramfs')
      return script && !(initramfs && initramfs.last >= script.last) && now - script.last > nextMs
        ? `${node} got its ${script.step === 'kernel' ? 'kernel' : 'boot script'} at ${at(script.last)}${times(script.count)} and then did not ask for the ${script.step === 'kernel' ? 'initramfs' : 'kernel'}`
        : undefined
    }
  },
  {
    id: 'no-interface',
    saw: 'kernel and initramfs were sent, and nothing came after them',
    remedy:
      'watch the console; the initramfs may lack the driver of the network card, or the memory may be too small',
    verdict: facts => {
      const { node, macs, now } = facts
      const sent = beforeKernel(facts, 'initramfs')
      return sent && now - sent.last > kernelMs
        ? `the kernel of ${node} was sent at ${at(sent.last)}${times(sent.count)} and nothing came after it: the initramfs found no interface with MAC ${macs.join(' or ')}, or the kernel did not start`
        : undefined
    }
  },
  {
    id: 'image-gone',
    saw: 'the installation failed, and the image has another pack since the node got its install script',
    remedy: 'the node tries again with the new one by itself',
    verdict: facts => {
      const { boot, would } = facts
      const found = failure(facts)
      return found &&
        boot?.given &&
        would &&
        boot.given.pack !== would.pack &&
        /cannot fetch|checksum/.test(found.reason)
        ? `${failed(facts, /./)}; the image has the pack ${would.pack} by now`
        : undefined
    }
  },
  {
    id: 'tracker-dead',
    saw: 'the torrent brought nothing: the installation failed for it, or fell back to http',
    remedy:
      'look at /monitor/service/tracker and /monitor/service/seeder, and whether nodes reach [torrent] tracker',
    verdict: facts => {
      const { node, boot, now, tracker } = facts
      const because = tracker === '' ? '' : ` (the tracker: ${tracker})`
      const reason = failed(facts, /nothing came by torrent|torrent did not deliver/)
      if (reason !== undefined) return reason + because
      if (installed(facts) || newest(boot?.steps, 'running')) return undefined
      const torrent = newest(boot?.steps, 'torrent')
      const http = newest(boot?.steps, 'image')
      if (!torrent) return undefined
      if (http && http.last >= torrent.last)
        return `the torrent brought nothing to ${node}${because}: it asked for ${torrent.about} at ${at(torrent.last)}, and for the image over http at ${at(http.last)}`
      return tracker !== '' && now - torrent.last > nextMs
        ? `${node} waits for its image by torrent since ${at(torrent.last)}${because}`
        : undefined
    }
  },
  {
    id: 'no-memory',
    saw: 'the installation failed for lack of memory',
    remedy: 'give the node more memory, a smaller image, or a "partscript" that puts the image on a disk',
    verdict: facts => failed(facts, /memory/)
  },
  {
    id: 'disk-full',
    saw: 'the installation failed because a file system of the node is full',
    remedy: 'make larger file systems in the "partscript", or a smaller image',
    verdict: facts => failed(facts, /no space (is )?left/i)
  },
  {
    id: 'failed-step',
    saw: 'a step of the installation failed for another reason',
    remedy: 'the reason is that of the step; more is on the console. The node tries again by itself',
    verdict: facts => failed(facts, /^/)
  },
  {
    id: 'controller-full',
    saw: "the boot does not go on, and svcd's own disk is full or fails",
    remedy: 'make room on the controller: reports of nodes cannot be kept until then',
    verdict: facts => {
      const { node, now, disk } = facts
      return disk !== '' && !installed(facts) && now - lastSeen(facts) > nextMs
        ? `nothing was seen of ${node} since ${at(lastSeen(facts))}, and ${disk}`
        : undefined
    }
  },
  {
    id: 'no-report',
    saw: 'the node got its install script, and reported nothing',
    remedy:
      'watch the console; the kernel may have killed the script, or the node may not reach svcd any more',
    verdict: ({ node, boot, now }) => {
      const install = newest(boot?.steps, 'install', 'kickstart')
      return install &&
        timeOf(newest(boot?.steps, 'report', 'running')) < install.last &&
        now - install.last > stepMs
        ? `${node} got its install script at ${at(install.last)}${times(install.count)} and reported nothing after it`
        : undefined
    }
  },
  {
    id: 'no-system',
    saw: 'the installation was completed, and the installed system did not report that it is up',
    remedy: 'watch the console; an image without systemd, or without curl and wget, cannot report',
    verdict: facts => {
      const done = installed(facts)
      const after = newest(facts.boot?.steps, 'running', 'install')
      const isKickstart = newest(facts.boot?.steps, 'install', 'kickstart')?.step === 'kickstart'
      return done && !isKickstart && timeOf(after) < done.last && facts.now - done.last > stepMs
        ? `${facts.node} was installed at ${at(done.last)}, and its system has not reported since`
        : undefined
    }
  },
  {
    id: 'image-changed',
    saw: 'the node runs well, and would get something else if it were started anew',
    remedy: 'start it anew when it may be',
    verdict: facts => (isUp(facts) && isStale(facts.running, facts.would) ? runs(facts) : undefined)
  },
  {
    id: 'all-well',
    saw: 'the installation was completed, or the installed system reported that it is up',
    remedy: '',
    verdict: facts => {
      const up = sign(facts)
      if (up?.step === 'running') return `all is well: the system of ${facts.node} was up at ${at(up.last)}`
      return up && up === installed(facts)
        ? `all is well: ${facts.node} was installed at ${at(up.last)}, and its system starts`
        : undefined
    }
  },
  {
    id: 'stalled',
    saw: 'a step has taken more than five minutes',
    remedy: 'watch the console; look at the network and at /monitor/status',
    verdict: facts =>
      facts.now - lastSeen(facts) > stepMs
        ? `${facts.node} ${doing(facts)} since ${at(lastSeen(facts))}, which is long`
        : undefined
  },
  {
    id: 'slow',
    saw: 'the boot goes on, and has taken more than fifteen minutes',
    remedy: 'wait; look how many nodes install at once, and whether torrents are used',
    verdict: facts =>
      facts.boot && facts.now - facts.boot.began > bootMs
        ? `${facts.node} boots since ${at(facts.boot.began)}, and ${doing(facts)}`
        : undefined
  },
  {
    id: 'in-progress',
    saw: 'the boot goes on',
    remedy: 'wait',
    verdict: facts => `${facts.node} boots: it ${doing(facts)}, at ${at(lastSeen(facts))}`
  }
]

/** What the last step was, in words. */
function doing({ boot }: Facts): string {
  const last = boot?.steps.reduce((a, b) => (b.last >= a.last ? b : a))
  return last
    ? `was last seen with "${last.step}${last.about === '' ? '' : ` ${last.about}`}"`
    : 'was never seen'
}

/** The rule that applies, and one sentence of verdict with the remedy. */
export function why(facts: Facts): { readonly rule: string; readonly verdict: string; readonly see: string } {
  for (const { id, remedy, verdict } of whys) {
    const text = verdict(facts)
    const see = `docs/troubleshooting.md#${id}`
    if (text !== undefined)
      return { rule: id, verdict: `${text}${remedy === '' ? '' : `; ${remedy}, see ${see}`}`, see }
  }
  throw new Error('the last rule applies always')
}

/** docs/troubleshooting.md with its tables: what stands between their marks is replaced. */
export function troubleshootingDocument(text: string): string {
  const steps = Object.entries(stepMeanings).map(([step, meaning]) => `| ${step} | ${meaning} |`)
  const rules = whys.map(
    ({ id, saw, remedy }) => `| [${id}](#${id}) | ${saw} | ${remedy === '' ? 'nothing' : remedy} |`
  )
  const tables = {
    steps: ['| step | what was seen |', '|---|---|', ...steps],
    rules: ['| rule | what svcd saw | what to do |', '|---|---|---|', ...rules]
  }
  return text.replace(
    /<!-- (steps|rules) -->.*?<!-- end -->/gs,
    (_, name: keyof typeof tables) => `<!-- ${name} -->\n${tables[name].join('\n')}\n<!-- end -->`
  )
}
