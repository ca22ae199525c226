import {
  bootMs,
  candidateMachine,
  cannotBoot,
  causeGone,
  causeSuffix,
  consoleQuote,
  describeLastStep,
  type Facts,
  failed,
  failure,
  formatTime,
  installed,
  isUp,
  kernelMs,
  lastBeforeKernel,
  lastReport,
  lastSeen,
  newest,
  nextMs,
  noScript,
  refusal,
  runs,
  seenAt,
  stepMs,
  timeOf
} from './boot-facts.js'
import { isRescue, packLacks, renderFailurePrefix, stepMeanings, tagReasonPrefix } from './boot-steps.js'
import { isStale } from './stale.js'

/** A rule: what svcd saw, and what to do about it. */
interface VerdictRule {
  /** Section in docs/troubleshooting.md. */
  readonly id: string
  /** The observation, for the documents. */
  readonly observation: string
  /** The remedy; '' if there is nothing to do. */
  readonly remedy: string
  readonly remedyIfGone?: string
  /** Returns what was seen of this node if the rule applies; else anything that is false. */
  readonly verdict: (facts: Facts) => string | false | undefined
}

const nothingMore = 'nothing more is to be done: the node asks again by itself, or start it anew'

/** The first rule that applies counts (rules 6.7). docs/troubleshooting.md has a section for each. */
export const verdictRules: readonly VerdictRule[] = [
  {
    id: 'bmc-only',
    observation:
      "a machine asked for a boot script with the MAC of the node's BMC, " +
      'and the node itself did not ask after that',
    remedy:
      'the BMC must not boot from the network; look whether the MACs of the node and of its BMC are mixed up',
    verdict: facts => {
      const bmc = newest(facts.foreignSteps, 'bmc')
      return bmc && facts.foreignSteps.every(({ last }) => last <= bmc.last) && bmc.last > lastSeen(facts)
        ? `only the BMC of ${facts.node} asked for a boot script, with the MAC ${bmc.about} from ` +
            `${bmc.from} at ${seenAt(bmc)}`
        : undefined
    }
  },
  {
    id: 'refused-address',
    observation:
      "the install script was asked for from an address that is not the node's, and refused, " +
      'and the node itself did not get it',
    remedy:
      'give the node that address, or let it boot with its own; ' +
      'for nodes without a fixed address set [boot] dynamic_nodes = yes',
    verdict: facts => {
      const { node } = facts
      const refused = refusal(facts)
      return (
        refused &&
        `the install script of ${node} was refused to ${refused.from} at ` +
          `${seenAt(refused)}: ${refused.from} is no address of ${node}`
      )
    }
  },
  {
    id: 'not-trusted',
    observation:
      'the node has `trust` = require, and its last quote was not good, so it got no install script',
    remedy: 'svcctl node trust NODE shows what it proved; docs/trust.md tells what each reason means',
    verdict: facts => {
      const { needsTrust, trust, boot } = facts
      const isLast =
        trust && Date.parse(trust.time) >= timeOf(newest(boot?.steps, 'script', 'install', 'report'))
      return needsTrust && isLast && distrust(facts)
    }
  },
  {
    id: 'other-network',
    observation:
      "the boot script was asked for from an address outside the node's network, " +
      'after all that was seen of the node itself',
    remedy: 'look which DHCP server answers on its wire, and whether the node stands in the right network',
    verdict: facts => {
      const asked = newest(facts.foreignSteps, 'script', 'no-script', 'disk')
      return asked && asked.last > lastSeen(facts)
        ? `a machine with the MAC of ${facts.node} asked for its boot script from ${asked.from} at ` +
            `${seenAt(asked)}, which is no address for it`
        : undefined
    }
  },
  {
    id: 'wrong-mac',
    observation:
      'nothing was seen of the node, or its boot stopped short, ' +
      'and after that a machine with an unknown MAC asked: it may be the node',
    remedy: 'compare the MACs; if that machine is the node, set its MAC (svcctl node set NODE macaddr=MAC)',
    verdict: facts => {
      const machine = candidateMachine(facts)
      if (!machine) return undefined
      const { node, macs, boot, neverSeenCount } = facts
      const since = boot ? ` after ${formatTime(lastSeen(facts))}` : ''
      const others =
        neverSeenCount === 0 ? '' : `, or another of ${neverSeenCount + 1} nodes of which nothing was seen`
      return (
        `no machine with the MAC of ${node} (${macs.join(', ') || 'none is known'}) asked for a boot ` +
        `script${since}, but one with the unknown MAC ${machine.mac} did, from ${machine.from} at ` +
        `${formatTime(machine.last)}: it may be ${node}${others}`
      )
    }
  },
  {
    id: 'no-mac',
    observation: 'the node has no MAC, and never asked',
    remedy:
      'set its MAC (svcctl node set NODE macaddr=MAC), choose the node in the menu at its console, or ' +
      'set switch and port for detection',
    verdict: ({ node, boot, macs }) =>
      !boot && macs.length === 0 && `${node} has no MAC, so no machine can be it`
  },
  {
    id: 'nothing-asked',
    observation: 'svcd switched the machine on, and nothing was asked of svcd since',
    remedy:
      'the firmware may have refused the boot loader: with Secure Boot on it starts only what is signed, ' +
      'shim and not iPXE (svcctl node set NODE loader=grub); or it does not boot from the network: watch ' +
      'the console',
    verdict: facts => {
      const { node, netboot, switchedOn = 0, now, leased } = facts
      if (!netboot || switchedOn <= lastSeen(facts) || now - switchedOn <= stepMs) return undefined
      const address =
        leased === undefined ? '' : `; the DHCP server lent it the address ${leased}, maybe before`
      return `since ${node} was switched on at ${formatTime(switchedOn)}, nothing was asked of svcd${address}`
    }
  },
  {
    id: 'address-only',
    observation: "the DHCP server lent an address to the node's MAC, and no boot script was asked for",
    remedy: 'look at the console whether iPXE was loaded, and at [http] url whether the node can reach it',
    verdict: ({ node, boot, leased }) =>
      !boot &&
      leased !== undefined &&
      `${node} got the address ${leased} by DHCP and then asked for no boot script`
  },
  {
    id: 'never-asked',
    observation: 'nothing was seen of the node since svcd keeps its boots',
    remedy:
      'look whether it has power, whether it boots from the network first, ' +
      'and whether its wire leads to the DHCP server',
    verdict: ({ node, boot, macs }) =>
      !boot && `no machine with the MAC of ${node} (${macs.join(', ')}) ever asked for a boot script`
  },
  {
    id: 'template-fault',
    observation: 'the machine asked for its boot script, and the template of it has a fault',
    remedy: 'correct the template, or set the variable that it names',
    remedyIfGone: 'start the node anew',
    verdict: facts => {
      const told = noScript(facts)
      return told?.about.startsWith(renderFailurePrefix)
        ? `${facts.node} asked for its boot script at ${seenAt(told)}: ` +
            `${told.about}${causeSuffix(facts, told.about)}`
        : undefined
    }
  },
  {
    id: 'no-kernel',
    observation:
      'the machine got a boot script that says that its image is packed, but has no kernel or initramfs',
    remedy:
      "put a kernel into the image's /boot (linux-image-amd64, and initramfs-tools), and pack it; if " +
      'the node has a tag, give what is packed the tag; the node asks again by itself',
    remedyIfGone: nothingMore,
    verdict: facts => cannotBoot(facts, about => about.includes(packLacks))
  },
  {
    id: 'tag-without-files',
    observation: 'the machine got a boot script that says that the tag of its image lacks a file',
    remedy:
      'pack the image, and give what is packed the tag (svcctl osimage tag IMAGE TAG); ' +
      'the node asks again by itself',
    remedyIfGone: nothingMore,
    verdict: facts => cannotBoot(facts, about => about.startsWith(tagReasonPrefix))
  },
  {
    id: 'no-boot-file',
    observation:
      'the machine got a boot script that says why it cannot boot, ' +
      'or a kernel or initramfs that is not there',
    remedy: 'pack the image, or give it files that are there; the node asks again by itself',
    remedyIfGone: nothingMore,
    verdict: facts => {
      const { node } = facts
      const told = cannotBoot(facts, () => true)
      if (told !== undefined) return told
      const missing = lastBeforeKernel(facts, 'kernel', 'initramfs', 'no-file')
      return missing && (missing.step === 'no-file' || missing.end === 'refused')
        ? `${node} asked for the file ${missing.about} at ${seenAt(missing)}, and it could not be sent`
        : undefined
    }
  },
  {
    id: 'cut',
    observation: 'the kernel or the initramfs was sent in part only',
    remedy:
      'the machine has too little memory for them, or its network loses the connection: watch the console',
    verdict: facts => {
      const file = lastBeforeKernel(facts, 'kernel', 'initramfs')
      return file?.end === 'cut'
        ? `${facts.node} took ${file.bytes} of ${file.bytesTotal} bytes of the ${file.step} ${file.about} ` +
            `at ${seenAt(file)} and then hung up`
        : undefined
    }
  },
  {
    id: 'from-disk',
    observation: 'the machine was told to boot from its disk, and its system did not report',
    remedy:
      'watch the console; a node that is to be installed needs ' +
      'netboot=yes (svcctl node set NODE netboot=yes)',
    verdict: facts => {
      const { node, boot, now } = facts
      const disk = newest(boot?.steps, 'disk')
      return disk &&
        disk.last >= timeOf(newest(boot?.steps, 'script', 'running', 'report')) &&
        now - disk.last > stepMs
        ? `${node} was told to boot from its disk at ${seenAt(disk)}, and its system has not reported since`
        : undefined
    }
  },
  {
    id: 'fetched-nothing',
    observation: 'the machine got its boot script, and did not fetch the kernel or the initramfs',
    remedy: 'watch the console; look whether the node can reach the address in [http] url',
    verdict: facts => {
      const { node, now } = facts
      const script = lastBeforeKernel(facts, 'script', 'kernel')
      const initramfs = lastBeforeKernel(facts, 'initramfs')
      return script && !(initramfs && initramfs.last >= script.last) && now - script.last > nextMs
        ? `${node} got its ${script.step === 'kernel' ? 'kernel' : 'boot script'} at ` +
            `${seenAt(script)} and then did not ask for the ` +
            `${script.step === 'kernel' ? 'initramfs' : 'kernel'}`
        : undefined
    }
  },
  {
    id: 'no-interface',
    observation: 'kernel and initramfs were sent, and nothing came after them',
    remedy:
      'watch the console; the initramfs may lack the driver of the network card, ' +
      'or the memory may be too small',
    verdict: facts => {
      const { node, macs, now } = facts
      const sent = lastBeforeKernel(facts, 'initramfs')
      return sent && now - sent.last > kernelMs
        ? `the kernel of ${node} was sent at ${seenAt(sent)} and nothing came after ` +
            `it: the initramfs found no interface with MAC ${macs.join(' or ')}, or the kernel did not start`
        : undefined
    }
  },
  {
    id: 'image-gone',
    observation:
      'the installation failed, and the image has another pack since the node got its install script',
    remedy: 'the node tries again with the new one by itself',
    verdict: facts => {
      const { boot, wouldInstall } = facts
      const found = failure(facts)
      return found &&
        boot?.given &&
        wouldInstall &&
        boot.given.pack !== wouldInstall.pack &&
        /cannot fetch|checksum/.test(found.reason)
        ? `${failed(facts, /./)}; the image has the pack ${wouldInstall.pack} by now`
        : undefined
    }
  },
  {
    id: 'tracker-dead',
    observation: 'the torrent brought nothing: the installation failed for it, or fell back to http',
    remedy:
      'look at /monitor/service/tracker and /monitor/service/seeder, ' +
      'and whether nodes reach [torrent] tracker',
    verdict: facts => {
      const { node, boot, now, trackerProblem } = facts
      const because = trackerProblem === '' ? '' : ` (the tracker: ${trackerProblem})`
      const reason = failed(facts, /nothing came by torrent|torrent did not deliver/)
      if (reason !== undefined) return reason + because
      if (installed(facts) || newest(boot?.steps, 'running')) return undefined
      const torrent = newest(boot?.steps, 'torrent')
      const http = newest(boot?.steps, 'image')
      if (!torrent) return undefined
      if (http && http.last >= torrent.last)
        return (
          `the torrent brought nothing to ${node}${because}: it asked for ${torrent.about} at ` +
          `${formatTime(torrent.last)}, and for the image over http at ${formatTime(http.last)}`
        )
      return trackerProblem !== '' && now - torrent.last > nextMs
        ? `${node} waits for its image by torrent since ${formatTime(torrent.last)}${because}`
        : undefined
    }
  },
  {
    id: 'no-memory',
    observation: 'the installation failed for lack of memory',
    remedy: 'give the node more memory, a smaller image, or a "partscript" that puts the image on a disk',
    verdict: facts => failed(facts, /memory/)
  },
  {
    id: 'disk-full',
    observation: 'the installation failed because a file system of the node is full',
    remedy: 'make larger file systems in the "partscript", or a smaller image',
    verdict: facts => failed(facts, /no space (is )?left/i)
  },
  {
    id: 'failed-step',
    observation: 'a step of the installation failed for another reason',
    remedy: 'the reason is that of the step; more is on the console. The node tries again by itself',
    verdict: facts => failed(facts, /^/)
  },
  {
    id: 'controller-full',
    observation: "the boot does not go on, and svcd's own disk is full or fails",
    remedy: 'make room on the controller: reports of nodes cannot be kept until then',
    verdict: facts => {
      const { node, now, diskProblem } = facts
      return diskProblem !== '' && !installed(facts) && now - lastSeen(facts) > nextMs
        ? `nothing was seen of ${node} since ${formatTime(lastSeen(facts))}, and ${diskProblem}`
        : undefined
    }
  },
  {
    id: 'no-report',
    observation: 'the node got its install script, and reported nothing',
    remedy:
      'watch the console; the kernel may have killed the script, or the node may not reach svcd any more',
    verdict: ({ node, boot, now }) => {
      const install = newest(boot?.steps, 'install', 'kickstart')
      return install &&
        timeOf(newest(boot?.steps, 'report', 'running')) < install.last &&
        now - install.last > stepMs
        ? `${node} got its install script at ${seenAt(install)} and reported nothing after it`
        : undefined
    }
  },
  {
    id: 'rescue',
    observation: 'the node was booted for a rescue, in memory',
    remedy: 'start it anew when you are done',
    verdict: facts => {
      const up = lastReport(facts)
      return up?.step === 'report' && isRescue(up.about)
        ? `${facts.node} was booted for a rescue at ${formatTime(up.last)}; it starts next ${
            facts.netboot
              ? 'from the network, and is installed again if it has a partscript or a disk layout'
              : 'from its disk'
          }`
        : undefined
    }
  },
  {
    id: 'no-system',
    observation: 'the installation was completed, and the installed system did not report that it is up',
    remedy: 'watch the console; an image without systemd, or without curl and wget, cannot report',
    verdict: facts => {
      const done = installed(facts)
      const after = newest(facts.boot?.steps, 'running', 'install')
      const isKickstart = newest(facts.boot?.steps, 'install', 'kickstart')?.step === 'kickstart'
      return done && !isKickstart && timeOf(after) < done.last && facts.now - done.last > stepMs
        ? `${facts.node} was installed at ${formatTime(done.last)}, and its system has not reported since`
        : undefined
    }
  },
  {
    id: 'degraded',
    observation:
      'the installed system is up, and units of it have failed, or still started five minutes later',
    remedy:
      'look at them on the node (systemctl --failed, journalctl -u UNIT); the node tells it at each boot',
    verdict: facts => {
      const [, word, units] = /^running\.(\w+)(?:: (.*))?$/s.exec(facts.state ?? '') ?? []
      return word !== undefined && isUp(facts)
        ? `the system of ${facts.node} is up at ${formatTime(timeOf(lastReport(facts)))}, and ${word}: ` +
            `${units ?? 'no unit was named'}`
        : undefined
    }
  },
  {
    id: 'trust-reported',
    observation: 'the node runs, and its last quote was not good; with `trust` = report that stops nothing',
    remedy: 'svcctl node trust NODE shows what it proved; docs/trust.md tells what each reason means',
    verdict: facts => isUp(facts) && distrust(facts)
  },
  {
    id: 'image-changed',
    observation: 'the node runs well, and would get something else if it were started anew',
    remedy: 'start it anew when it may be',
    verdict: facts => isUp(facts) && isStale(facts.running, facts.wouldInstall) && runs(facts)
  },
  {
    id: 'all-well',
    observation: 'the installation was completed, or the installed system reported that it is up',
    remedy: '',
    verdict: facts => {
      const up = lastReport(facts)
      if (up?.step === 'running')
        return `all is well: the system of ${facts.node} was up at ${formatTime(up.last)}`
      return up && up === installed(facts)
        ? `all is well: ${facts.node} was installed at ${formatTime(up.last)}, and its system starts`
        : undefined
    }
  },
  {
    id: 'stalled',
    observation: 'a step has taken more than five minutes',
    remedy: 'watch the console; look at the network and at /monitor/status',
    verdict: facts =>
      facts.now - lastSeen(facts) > stepMs
        ? `${facts.node} ${describeLastStep(facts)} at ${formatTime(lastSeen(facts))}, ` +
          'and nothing was seen of it since, which is long'
        : undefined
  },
  {
    id: 'slow',
    observation: 'the boot goes on, and has taken more than fifteen minutes',
    remedy: 'wait; look how many nodes install at once, and whether torrents are used',
    verdict: facts =>
      facts.boot && facts.now - facts.boot.began > bootMs
        ? `${facts.node} boots since ${formatTime(facts.boot.began)}, and last it ${describeLastStep(facts)}`
        : undefined
  },
  {
    id: 'in-progress',
    observation: 'the boot goes on',
    remedy: 'wait',
    verdict: facts => `${facts.node} boots: it ${describeLastStep(facts)} at ${formatTime(lastSeen(facts))}`
  }
]

const distrust = ({ node, trust }: Facts) =>
  trust && trust.verdict !== 'good'
    ? `${node} is not trusted since its quote at ${formatTime(Date.parse(trust.time))}: ${trust.reason}`
    : undefined

interface Verdict {
  readonly rule: string
  readonly verdict: string
  readonly see: string
}

/**
 * Returns the rule that applies, and one sentence with verdict and remedy. If another machine may have asked
 * in its name, the authenticated boot comes first (rules 6.7); kernel (rules 15.13) and console follow.
 */
export function why(facts: Facts): Verdict {
  const found = wholeVerdict(facts)
  const { unsignedKernel, lackingRoot } = facts
  const besides = [isUp(facts) ? undefined : unsignedKernel, lackingRoot].filter(one => one !== undefined)
  const told = besides.map(one => `. Besides, ${one}`).join('')
  return { ...found, verdict: found.verdict + told + consoleQuote(facts) }
}

function wholeVerdict(facts: Facts): Verdict {
  const seen = firstVerdict(facts)
  const own = authenticatedFacts(facts, seen)
  if (!own) return seen
  const { rule, verdict, see } = firstVerdict(own)
  const other =
    `a machine that showed no token asked in the name of ${facts.node}, ` +
    'from an address that is not its own'
  return { rule, verdict: `${verdict}. After that ${other}: ${seen.verdict}`, see }
}

function firstVerdict(facts: Facts): Verdict {
  for (const { id, remedy, remedyIfGone, verdict } of verdictRules) {
    const text = verdict(facts)
    if (!text) continue
    const see = `docs/troubleshooting.md#${id}`
    const isRight = remedyIfGone !== undefined && text.endsWith(causeGone)
    const todo = (isRight ? remedyIfGone : remedy).replaceAll('NODE', facts.node)
    return {
      rule: id,
      verdict: todo === '' ? text : `${text}; ${todo}${isRight ? '' : `, see ${sectionText(id)}`}`,
      see
    }
  }
  throw new Error('the last rule applies always')
}

/** Names the section for readers: packages install the page, and a checkout has it. */
const sectionText = (id: string) =>
  `"${id}" in docs/troubleshooting.md (a package has it in /usr/share/doc/svcd)`

/** Returns the facts of the authenticated boot; undefined if `seen` is about the node itself. */
function authenticatedFacts(facts: Facts, seen: Verdict): Facts | undefined {
  const { boot, reportedBoot, address, leased } = facts
  const own = { ...facts, boot: reportedBoot, foreignSteps: [], unknownMachines: [] }
  if (reportedBoot === undefined) return undefined
  if (boot === reportedBoot)
    return foreignMachineRules.has(seen.rule) && (isUp(facts) || failure(facts)) ? own : undefined
  // Without a known address, the node may ask from any address of its network.
  const isKnown = address !== undefined || leased !== undefined
  return isKnown && !boot?.proven && !boot?.steps.some(({ from }) => from === leased) ? own : undefined
}

/** Rules about machines at an address that is not the node's. */
const foreignMachineRules: ReadonlySet<string> = new Set(['bmc-only', 'other-network'])

/** Replaces the generated tables in the text of docs/troubleshooting.md. */
export function troubleshootingDocument(text: string): string {
  const steps = Object.entries(stepMeanings).map(([step, meaning]) => `| ${step} | ${meaning} |`)
  const rules = verdictRules.map(
    ({ id, observation, remedy }) =>
      `| [${id}](#${id}) | ${observation} | ${remedy === '' ? 'nothing' : remedy} |`
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
