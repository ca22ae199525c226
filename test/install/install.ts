import type { Test } from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { base64, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { type Answer, FakeController } from './fake-controller.js'
import { InstallingNode, type Run, type Setup } from './installing-node.js'
import { packImage } from './packed-image.js'

export interface Installation {
  readonly controller: FakeController
  readonly machine: InstallingNode
  readonly run: Run
}

export interface Plan extends Setup {
  readonly data?: Partial<InstallData>
  /** Answers of the controller besides the image at /files/rocky9.tar.gz. */
  readonly answers?: Readonly<Record<string, Answer>>
  readonly address?: string
  /** A change to the rendered script, for what has no value in the data. */
  readonly edit?: (script: string) => string
  /** Done to the machine before the script runs. */
  readonly prepare?: (machine: InstallingNode, controller: FakeController) => void
}

/** The usual image, packed once. */
export const image = packImage()

/** A controller that is closed with the test. */
export async function startFakeController(t: Test, address?: string): Promise<FakeController> {
  const controller = await new FakeController().listen(address)
  t.teardown(() => controller.close())
  controller.files.set('/files/rocky9.tar.gz', image)
  return controller
}

/** One installation: a controller, a machine, the shipped script. */
export async function install(t: Test, plan: Plan): Promise<Installation> {
  const controller = await startFakeController(t, plan.address)
  for (const [path, answer] of Object.entries(plan.answers ?? {})) controller.files.set(path, answer)
  const machine = new InstallingNode(t, plan)
  plan.prepare?.(machine, controller)
  const script = installScript(installData({ ...controller.place, ...plan.data }))
  const [run] = await machine.run(plan.edit?.(script) ?? script)
  if (run === undefined) throw new Error('no run')
  return { controller, machine, run }
}

/** The plan without these steps, which the case is not about: its partscript puts the image in place. */
export function inPlace(plan: Plan, image: Buffer, mounts: string, ...steps: readonly string[]): Plan {
  return {
    ...without(plan, ...steps),
    data: { ...plan.data, partscript: base64(`${mounts}\ntar -xzf /image -C /sysroot`) },
    prepare: (machine, controller) => {
      machine.write('image', image)
      plan.prepare?.(machine, controller)
    }
  }
}

/**
 * The plan without these steps, which the case is not about. Of the 440 forks of an installation unpacking
 * and the network take 150 each, and the report of the hardware, `inventory`, takes 30.
 */
export function without(plan: Plan, ...steps: readonly string[]): Plan {
  const left = steps.join('|')
  const lines = new RegExp(`^ {2}(run_step (${left}) .*|(${left})_update)\\n`, 'gm')
  return { ...plan, edit: script => (plan.edit?.(script) ?? script).replace(lines, '') }
}

/** An installation that neither reports its hardware nor writes the files of its network. */
export const unpacked = (t: Test, plan: Plan): Promise<Installation> =>
  install(t, without(plan, 'inventory', 'network'))

/**
 * The runs ended with these statuses. What a node printed never goes into the name of an assertion: hostile
 * text there would end the test's own report, and hide failures.
 */
export function exits(t: Test, runs: readonly Run[], statuses: readonly number[]): void {
  const output = JSON.stringify(runs.map(run => run.output))
  t.strictSame(
    runs.map(run => run.status),
    statuses,
    'exit status',
    { output }
  )
}

/** The run ended well and said so. */
export function completed(t: Test, { controller, run }: Installation): void {
  exits(t, [run], [0])
  t.equal(controller.states.at(-1), 'installer.completed')
}

/** The run failed in `step`, its last report names it, and the reason matches. */
export function failed(t: Test, { controller, run }: Installation, step: string, reason: RegExp): void {
  t.not(run.status, 0, 'exit status', { output: JSON.stringify(run.output) })
  t.match(controller.states.at(-1), new RegExp(`^installer\\.failed: ${step}: `))
  t.match(controller.states.at(-1), reason)
  t.notOk(controller.states.includes('installer.completed'))
}
