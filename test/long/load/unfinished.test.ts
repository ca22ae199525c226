import { readFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type Child, start } from '../../support/child.js'
import { Daemon } from '../../support/daemon.js'
import { addNamespace, removeNamespace } from '../../support/namespaces.js'
import { output } from '../../support/programs.js'
import { proof } from '../../support/proof.js'
import { scratch } from '../../support/scratch.js'
import type { Machines, Outcome } from './machines.js'
import type { Misuse, Strangers } from './strangers.js'

// Bodies that do not come take all descriptors that there are: machines get their boot scripts over new
// connections, each one of them.

// Machines and strangers take no time of the controller's processors where they are machines of their own.
setPriority(-5)

const seconds = Number(process.env.LOAD_SECONDS ?? 30)
const HOST = '10.9.0.1'
/** So many connections one process of strangers keeps. */
const EACH = 15_000

const kinds: readonly [misuse: Misuse, againMs: number][] = [
  ['send a body slowly', 1000],
  ['send a body slowly', 0],
  ['send a body with a GET', 1000],
  ['send a body with a GET', 0],
  ['pipeline a body that does not end', 1000],
  ['pipeline a body that does not end', 0]
]
/** Those of a unit, or as many as this machine allows. */
const allowed = Number(/Max open files +\d+ +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1])
const most = Math.min(65_536, allowed)

// rules 2.11, 2.15
for (const [files, connections] of [
  [1024, 1331],
  [most, most + 1000]
] as const)
  for (const [misuse, againMs] of kinds)
    t.test(`${connections} ${misuse}, again in ${againMs} ms, ${files} files`, { timeout: 0 }, async t => {
      const namespace = await addNamespace('bodies')
      t.teardown(() => removeNamespace(namespace))
      // Not loopback, which has no bound of its own: each address of it is one of this machine.
      await output('ip', ['-n', namespace, 'address', 'add', `${HOST}/16`, 'dev', 'lo'])
      const within = ['ip', 'netns', 'exec', namespace]
      const enter = [...within, 'prlimit', `--nofile=${files}:${files}`]
      const daemon = await Daemon.start({ directory: scratch(t), listen: `${HOST}:7050`, enter })
      const children: Child[] = []
      t.teardown(async () => {
        await Promise.all(children.map(child => child.kill()))
        await daemon.stop()
      })
      const launch = (name: string, options: Strangers | Machines) => {
        const program = join(import.meta.dirname, `${name}.js`)
        const words = [...enter, 'nice', '-n', '8', process.execPath, program, JSON.stringify(options)]
        const [first = '', ...rest] = words.map(word =>
          word.startsWith('--nofile') ? `--nofile=${allowed}:${allowed}` : word
        )
        const child = start(first, rest, { input: '' })
        children.push(child)
        return child
      }
      const interfaces = [{ interface: 'BOOTIF', network: 'cluster' }]
      await daemon.create('network', 'cluster', { network: '10.8.0.0/15' })
      await daemon.create('group', 'compute', { interfaces })
      const machines = Array.from({ length: 100 }, (_, n) => n.toString(16).padStart(2, '0'))
      for (const [n, digits] of machines.entries())
        await daemon.create('node', `n${n}`, {
          group: 'compute',
          interfaces: [{ interface: 'BOOTIF', network: 'cluster', macaddress: `52:54:00:00:01:${digits}` }]
        })
      const boots = async () => {
        const child = launch('machines', {
          ...{
            host: HOST,
            port: 7050,
            subnet: 0,
            network: '10.8',
            connection: 'new',
            perSecond: 20,
            seconds
          },
          ...{ path: '/boot/search/mac/52:54:00:00:01:#', machines: 100, patient: false }
        })
        const { stdout, stderr } = await child.ended
        if (stdout === '') throw new Error(`the machines ended: ${stderr}`)
        return JSON.parse(stdout) as Outcome
      }
      await output('ip', ['-n', namespace, 'address', 'add', '10.8.0.1/16', 'dev', 'lo'])
      const crowds = Array.from({ length: Math.ceil(connections / EACH) }, (_, n) =>
        launch('strangers', {
          ...{ host: HOST, port: 7050, misuse, subnet: 0, network: '10.9', addresses: 20_000, againMs },
          connections: Math.min(EACH, connections - n * EACH)
        })
      )
      await sleep(connections + 8_000)
      const outcome = await boots()
      const standing = crowds.map(child => child.output().trim().split('\n').at(-1))
      const note = `${files} descriptors, ${connections} strangers ${misuse} and come again in ${againMs} ms: ${outcome.asked} boot scripts, ${outcome.failed} failed, median ${outcome.medianMs} ms, 99% ${outcome.p99Ms} ms, most ${outcome.maxMs} ms ${outcome.reasons.join('; ')}`
      t.comment(note)
      t.comment(`strangers: ${standing.join(' ')}`)
      proof('boot scripts while bodies do not come', { tried: outcome.asked, crashes: 0, note })
      t.ok(outcome.asked > 100)
      t.same([outcome.failed, outcome.reasons], [0, []], 'each machine gets its boot script')
    })
