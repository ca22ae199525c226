import { setTimeout as sleep } from 'node:timers/promises'
import { Console } from '../../lib/rehearsal/watch.js'
import type { Daemon, NodeStatus } from './daemon.js'
import { type Machine, runMachine } from './virtual-machine.js'

/** What the daemon says of a node that was booted for real, and what its console showed. */
export interface RealBoot {
  /** Its last report; null: it never reported. */
  readonly state: string | null
  readonly rule: string
  readonly verdict: string
  /** The faults that a rehearsal knows by the console (rules 16.3). */
  readonly faults: readonly string[]
  readonly seconds: number
}

const pollMs = 2000
/** A system that waits for a unit tells so 300 s after its start. */
const silenceMs = 360_000
const timeLimitMs = 600_000
/** The last report may be on its way when the machine ends. */
const lastMs = 3000

/**
 * Boots a machine as the node of the same name, until its system has reported, a step has failed, the console
 * shows that nothing more is to come, or nothing was seen for six minutes.
 * @throws Error when qemu cannot run or the daemon does not answer
 */
export async function realBoot(controller: Daemon, machine: Machine): Promise<RealBoot> {
  const { name } = machine
  const began = Date.now()
  const screen = new Console(Date.now)
  const stop = new AbortController()
  const { signal } = stop
  const running = runMachine({ ...machine, timeLimitMs, signal, onLine: line => screen.add(line) }).then(
    () => 'off',
    (error: Error) => error.message
  )
  let state: NodeStatus['state'] = null
  const isOver = () =>
    /^running|failed/.test(state ?? '') || screen.hasEnded || Date.now() - screen.lastMs > silenceMs
  let end: string | undefined
  while (end === undefined && !isOver()) {
    end = await Promise.race([running, sleep(pollMs).then(() => undefined)])
    const { state: now } = await controller.monitor(name)
    if (now !== state) screen.lastMs = Date.now()
    state = now
  }
  await sleep(lastMs)
  stop.abort()
  end = await running
  if (end.includes('could not run')) throw new Error(end)
  const { body } = await controller.request('GET', `/monitor/node/${name}/_why`)
  const { _why } = (body as { monitor: { _why: Record<string, { rule: string; verdict: string }> } }).monitor
  const { rule = '', verdict = '' } = _why[name] ?? {}
  const { state: last } = await controller.monitor(name)
  const seconds = Math.round((Date.now() - began) / 1000)
  return { state: last, rule, verdict, faults: [...screen.faults], seconds }
}
