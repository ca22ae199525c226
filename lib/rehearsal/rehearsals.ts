import { lookup } from 'node:dns/promises'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { isIPv4 } from 'node:net'
import { join } from 'node:path'
import { tryLater, unavailable } from '../base/errors.js'
import type { JsonValue } from '../base/json.js'
import type { Log } from '../base/log.js'
import { ownFirst } from '../config/reachability.js'
import type { Config } from '../config/types.js'
import { exists } from '../disk/file.js'
import { removeTree } from '../disk/open-directory.js'
import type { RootHelper } from '../helper/commands.js'
import { REHEARSAL } from '../helper/rehearse.js'
import type { Inventory } from '../inventory/facts.js'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { type EffectiveNode, isInstaller, loaderOf } from '../model/effective.js'
import { type Actor, daemonActor, type Model } from '../model/model.js'
import { installHint, locate } from '../program/program.js'
import { type Copy, copyOf, type Override, sectionsOf, withOverride } from './copy.js'
import { type Machine, machineOf, type Ovmf } from './machine.js'

/** The orders of the process in the network namespace: `plan.json` in the scratch directory. */
export interface Plan {
  readonly node: string
  readonly machine: Machine
  readonly qemu: string
  readonly ovmf: Ovmf | undefined
  readonly copy: Copy
  /** `section.key=value` of the ini, and whole sections as they were read. */
  readonly settings: readonly string[]
  readonly sections: ReturnType<typeof sectionsOf>
  readonly timeLimitMs: number
}

/** Its outcome: `result.json`. */
export interface Result {
  readonly well: boolean
  /** One sentence: the verdict of `_why`, after the faults that it does not know. */
  readonly verdict: string
  readonly rule: string
  readonly faults: readonly string[]
  readonly accel: 'kvm' | 'tcg'
  readonly seconds: number
  readonly steps: JsonValue
  /** The last lines of the console. */
  readonly serial: readonly string[]
}

interface Options {
  readonly config: Config
  readonly model: Model
  readonly jobs: Jobs
  readonly work: RootHelper
  readonly inventoryOf: (node: string) => Inventory | undefined
  readonly log: Log
  readonly now: () => number
}

const MOST_WAITING = 8
/** For the start and the end of the rehearsal controller. */
const AROUND_MS = 120_000
const LONGEST_RESULT = 1_000_000
const CONSOLE_TOLD = 15
/** Where distributions have qemu, and the firmware of UEFI. */
const qemus = ['qemu-system-x86_64', '/usr/libexec/qemu-kvm']
const ovmfs: readonly Ovmf[] = [
  { code: '/usr/share/OVMF/OVMF_CODE_4M.fd', settings: '/usr/share/OVMF/OVMF_VARS_4M.fd' },
  { code: '/usr/share/OVMF/OVMF_CODE.fd', settings: '/usr/share/OVMF/OVMF_VARS.fd' },
  { code: '/usr/share/edk2/ovmf/OVMF_CODE.fd', settings: '/usr/share/edk2/ovmf/OVMF_VARS.fd' }
]

/** Boots in a virtual machine what a node would get next (rules 16.1 to 16.3). One at a time. */
export class Rehearsals {
  readonly #scratch: string

  private constructor(private readonly o: Options) {
    this.#scratch = join(o.config.paths.state, REHEARSAL)
  }

  /** Removes what a rehearsal left that was killed. */
  static async open(options: Options): Promise<Rehearsals> {
    const rehearsals = new Rehearsals(options)
    await rehearsals.#sweep()
    return rehearsals
  }

  /**
   * Queues a rehearsal, which fails unless the node comes up well. Throws 404 for an unknown node, image or
   * tag, 503 without qemu, for a node that cannot be rehearsed, and while 8 wait.
   */
  async submit(name: string, override: Override, { who }: Actor): Promise<SubmittedJob> {
    const { jobs, model } = this.o
    withOverride(model, name, override)
    await this.#plan(name, override)
    const waiting = jobs.records().filter(({ kind, state }) => kind === 'rehearsal' && state === 'queued')
    if (waiting.length >= MOST_WAITING) throw tryLater(`${MOST_WAITING} rehearsals are waiting already`, 60)
    return jobs.submit({
      ...{ kind: 'rehearsal', object: `node ${name}`, by: who, lanes: ['rehearsal'] },
      run: job => this.#run(name, override, job)
    })
  }

  async #run(name: string, override: Override, job: JobContext): Promise<void> {
    const { work } = this.o
    const { target, plan } = await this.#plan(name, override)
    const { machine, timeLimitMs } = plan
    const { node, controller } = machine.net
    await this.#sweep()
    try {
      await this.#fill(plan)
      job.line(describe(plan, target))
      let lines = 0
      await work.call(
        'rehearse',
        { node, controller },
        {
          ...{ signal: job.signal, timeLimitMs: timeLimitMs + AROUND_MS },
          line: text => {
            // A machine that boots makes some ten steps.
            job.progress(Math.min(0.95, ++lines / 12))
            job.line(text)
          }
        }
      )
      await this.#conclude(name, target, machine, job)
    } finally {
      await this.#sweep()
    }
  }

  /** Reads the result, keeps it with the pack, and throws 503 if the node did not come up well. */
  async #conclude(name: string, { image }: EffectiveNode, { firmware }: Machine, job: JobContext) {
    const { model, now } = this.o
    const text = await readFile(join(this.#scratch, 'result.json'), 'utf8')
    if (text.length > LONGEST_RESULT) throw unavailable(`the result of the rehearsal is too long`)
    const result = JSON.parse(text) as Result
    const { well, verdict, rule, faults, serial } = result
    for (const [key, value] of Object.entries({ ...result, firmware })) job.result(key, value as JsonValue)
    const day = new Date(now()).toISOString().slice(0, 10)
    const rehearsed = `on ${day} as ${name} (${firmware}): ${well ? 'well' : 'not well'}`
    const pack = image?.imagefile ?? ''
    await model.change(daemonActor, tx => {
      const doc = tx.get('pack', pack)
      if (doc) tx.put('pack', pack, { ...doc, rehearsed })
    })
    if (!well) for (const line of serial.slice(-CONSOLE_TOLD)) job.line(`| ${line}`)
    // A fault may come after the end of an installation that went well.
    const said = rule === 'all-well' && !well ? faults : [...faults, verdict]
    const what = `rehearsed ${rehearsed}: ${said.join('; ')}`
    if (!well) throw unavailable(what, 'not-well')
    job.line(what)
  }

  async #plan(name: string, override: Override): Promise<{ target: EffectiveNode; plan: Plan }> {
    const { config, model, inventoryOf } = this.o
    const [qemu] = (await Promise.all(qemus.map(file => locate(file)))).filter(file => file !== undefined)
    if (qemu === undefined)
      throw unavailable(`qemu-system-x86_64 is not installed${installHint('qemu-system-x86_64')}`)
    const ovmf = await firstOvmf()
    const target = withOverride(model, name, override)
    for (const field of ['kernelfile', 'initrdfile', 'imagefile'] as const)
      if (!isInstaller(target.settings.provision_method) && target.image && !target.image[field])
        throw unavailable(
          `OS image ${target.image.name} has no ${field}, and cannot be rehearsed: ` +
            `svcctl osimage pack ${target.image.name}`,
          'image-unusable'
        )
    const bounds = {
      ...{ memoryBytes: config.rehearsal.memory, cpus: config.rehearsal.cpus },
      ...{ hasUefi: ovmf !== undefined, hasTpm: (await locate('swtpm')) !== undefined }
    }
    const where = await this.#where(target)
    try {
      const machine = machineOf(model.view, target, inventoryOf(name), bounds, where)
      const copy = copyOf(model, target, machine)
      const timeLimitMs = config.rehearsal.time_limit
      const own = { settings: this.#settings(machine), sections: sectionsOf(config) }
      return { target, plan: { node: name, machine, qemu, ovmf, copy, ...own, timeLimitMs } }
    } catch (error) {
      throw unavailable((error as Error).message, 'unavailable', error)
    }
  }

  /** The address at which nodes reach this controller, and its port for plain http. */
  async #where(target: EffectiveNode) {
    const { config } = this.o
    const [url = ''] = ownFirst(config)
    const host = new URL(url).hostname
    const known = [host, config.controller.address].find(isIPv4)
    const controller = known ?? (await lookup(host, 4).catch(() => undefined))?.address ?? host
    const { port } = config.http.listen
    return { controller, port: port === 0 ? 7050 : port, loader: loaderOf(target, config.boot.loader) }
  }

  #settings({ net, loader }: Machine): string[] {
    const { config } = this.o
    const { paths, controller, tftp } = config
    const at = (name: string) => join(this.#scratch, name)
    const words = ['control', 'check', 'reload'].map(key => `tftp.${key}=true`)
    const signed = ['shim_x64', 'grub_x64', 'mok_x64'] as const
    return [
      ...[`paths.state=${at('state')}`, `paths.files=${at('files')}`, `image.directory=${at('images')}`],
      ...(['templates', 'roles', 'scripts'] as const).map(key => `paths.${key}=${paths[key]}`),
      `image.identity=${config.image.identity.join(', ')}`,
      ...[`http.listen=0.0.0.0:${net.port}`, `http.url=http://${net.controller}:${net.port}`],
      ...[`controller.name=${controller.name}`, `controller.address=${net.controller}`],
      ...(loader === 'grub'
        ? ['tftp.server=tftpd-hpa', `tftp.directory=${at('tftp')}`, ...words].concat(
            signed.map(key => `tftp.${key}=${tftp[key]}`)
          )
        : [])
    ]
  }

  /** Fills the scratch directory. The packs are links: nothing is written through them. */
  async #fill(plan: Plan): Promise<void> {
    const { config } = this.o
    const at = (...names: string[]) => join(this.#scratch, ...names)
    await mkdir(at(), { mode: 0o700 })
    for (const name of ['state', 'files', 'images']) await mkdir(at(name), { mode: 0o700 })
    for (const file of plan.copy.files) await symlink(join(config.paths.files, file), at('files', file))
    await writeFile(at('svcd.ini'), '', { mode: 0o600 })
    await writeFile(at('plan.json'), JSON.stringify(plan), { mode: 0o600 })
  }

  async #sweep(): Promise<void> {
    await removeTree(this.#scratch).catch((error: Error) =>
      this.o.log.error(`what a rehearsal left could not be removed: ${error.message}`)
    )
  }
}

async function firstOvmf(): Promise<Ovmf | undefined> {
  for (const one of ovmfs) if (await exists(one.code)) return one
  return undefined
}

function describe({ machine, node }: Plan, { image, settings }: EffectiveNode): string {
  const { firmware, loader, macs, card, disks, memoryMib, cpus, tpm } = machine
  const tag = settings.osimagetag === 'default' ? '' : `:${settings.osimagetag}`
  return (
    `a virtual machine as ${node}: OS image ${image?.name ?? '-'}${tag}, ${firmware}, ${loader}, ` +
    `${memoryMib} MiB, ${cpus} processors, ${macs.length} card(s) ${card}, ` +
    `${disks.length === 0 ? 'no disk' : `${disks.length} disk(s)`}${tpm ? ', a TPM' : ''}`
  )
}
