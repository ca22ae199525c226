import { setTimeout as sleep } from 'node:timers/promises'
import { Console } from '../../lib/rehearsal/watch.js'
import type { Daemon } from './daemon.js'
import { type Machine, runMachine } from './virtual-machine.js'

/** The daemon's verdict on a node that was booted for real, and the faults that its console showed. */
export interface RealBoot {
  /** Whether its system reported that it is up. */
  readonly isUp: boolean
  /** Its last state; null: it never reported. */
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
const timeLimitMs = 14 * 60_000
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
  let steps = await stepsOf(controller, name)
  const isUp = () => steps.some(({ step }) => step === 'running')
  const isOver = () =>
    isUp() ||
    steps.some(({ step, about }) => step === 'report' && about.includes('failed')) ||
    screen.hasEnded ||
    Date.now() - screen.lastMs > silenceMs
  let end: string | undefined
  while (end === undefined && !isOver()) {
    end = await Promise.race([running, sleep(pollMs).then(() => undefined)])
    const now = await stepsOf(controller, name)
    if (now.length > steps.length) screen.lastMs = Date.now()
    steps = now
  }
  await sleep(lastMs)
  stop.abort()
  end = await running
  if (end.includes('could not run')) throw new Error(end)
  const { rule, verdict } = (await ask(controller, name, '_why')) as Pick<RealBoot, 'rule' | 'verdict'>
  const { state } = await controller.monitor(name)
  const seconds = Math.round((Date.now() - began) / 1000)
  return { isUp: isUp(), state, rule, verdict, faults: [...screen.faults], seconds }
}

interface Step {
  readonly step: string
  readonly about: string
}

/** Returns the steps of all boots of a node. */
async function stepsOf(controller: Daemon, name: string): Promise<readonly Step[]> {
  const { boots } = (await ask(controller, name, '_boots')) as { boots: readonly { steps?: Step[] }[] }
  return boots.flatMap(({ steps = [] }) => steps)
}

async function ask(controller: Daemon, name: string, word: '_why' | '_boots'): Promise<unknown> {
  const { body } = await controller.request('GET', `/monitor/node/${name}/${word}`)
  return (body as { monitor: Record<string, Record<string, unknown>> }).monitor[word.slice(1)]?.[name]
}
