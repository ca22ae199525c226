import { asPauses } from '../base/concurrency.js'
import { type Captured, capture } from '../services/capture.js'
import { ansible } from './ansible.js'
import { conman, powerman } from './consoles.js'
import { hosts, knownHosts, prometheus } from './hosts.js'
import { type ExportNode, type ExportSources, nodesOf } from './nodes.js'
import { clustershell, genders } from './sets.js'
import { slurm, slurmTopology } from './slurm.js'

/** Options of an export. */
interface ExportOptions {
  /** Finds the nodes, in steps. */
  readonly named: () => Generator<unknown, readonly string[]>
  /** Whether the caller sees the whole cluster, and asks for it. */
  readonly isWhole: boolean
  /** Port of the targets of Prometheus. */
  readonly port: number
  /** The one host whose variables Ansible asks for. */
  readonly host: string | undefined
}

/** The nodes and objects of one moment, with the options. */
interface Export extends ExportOptions {
  readonly nodes: readonly ExportNode[]
  readonly captured: Captured
}

interface ExportFormat {
  readonly meaning: string
  /** Whether it is JSON; else lines, each behind a line break, and comments that begin with #. */
  readonly isJson?: true
  text(of: Export): Generator<string>
}

/** The formats by name (rules 12.11). */
export const formats: Readonly<Record<string, ExportFormat>> = {
  ansible: {
    meaning: 'dynamic inventory of Ansible',
    isJson: true,
    text: ({ nodes, host }) => ansible(nodes, host)
  },
  clustershell: { meaning: 'groups of ClusterShell', text: ({ nodes }) => clustershell(nodes) },
  genders: { meaning: 'file of genders', text: ({ nodes }) => genders(nodes) },
  hosts: { meaning: '/etc/hosts', text: ({ nodes, captured, isWhole }) => hosts(nodes, captured, isWhole) },
  'known-hosts': { meaning: 'host keys for OpenSSH', text: ({ nodes }) => knownHosts(nodes) },
  slurm: { meaning: 'NodeName lines of slurm.conf', text: ({ nodes }) => slurm(nodes) },
  'slurm-topology': { meaning: 'topology.conf of Slurm', text: ({ nodes }) => slurmTopology(nodes) },
  conman: { meaning: 'consoles of conman.conf', text: ({ nodes, captured }) => conman(nodes, captured) },
  powerman: { meaning: 'devices of powerman.conf', text: ({ nodes, captured }) => powerman(nodes, captured) },
  prometheus: {
    meaning: 'http_sd of Prometheus',
    isJson: true,
    text: ({ nodes, port }) => prometheus(nodes, port)
  }
}

/** Returns an export in parts; '' are pauses. The first iteration captures the nodes, and may throw. */
export function exported(name: string, sources: ExportSources, options: ExportOptions): Iterable<string> {
  let of: Export | undefined
  const { view, cluster } = sources
  return {
    *[Symbol.iterator]() {
      const format = formats[name] as ExportFormat
      if (!of) {
        const names = [...(yield* asPauses(options.named()))]
        const captured = capture(view, cluster)
        of = { ...options, captured, nodes: yield* asPauses(nodesOf(captured, sources, names)) }
      }
      if (!format.isJson) yield `# Written by svcd as export ${name}: a change here is lost.`
      yield* format.text(of)
    }
  }
}
