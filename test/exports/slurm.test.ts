import t from 'tap'
import type { ExportNode } from '../../lib/exports/nodes.js'
import { slurm } from '../../lib/exports/slurm.js'

// rules 12.11
t.test(
  'a node that reports more threads than Slurm can count is left out: its line would stop slurmctld',
  t => {
    const node = (name: string, threads: number) => {
      const inventory = { cpu: { sockets: 1, cores: threads, threads }, memory: { total: 2 ** 34 } }
      return { name, variables: {}, report: () => ({ since: '', inventory }) } as unknown as ExportNode
    }
    const text = [...slurm([node('good', 4), node('evil', 65_534), node('worse', 2 ** 53 - 1)])].join('')
    t.match(text, /\nNodeName=good CPUs=4 /)
    t.notMatch(text, /NodeName=(?:evil|worse)/)
    t.match(text, /# no hardware reported yet, or more than Slurm can count, left out: evil,worse/)
    t.end()
  }
)
