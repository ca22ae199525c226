import { copyFile, open, readFile, stat, statfs, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { type JsonObject, objectsIn } from '../base/json.js'
import { createLog, oneLine } from '../base/log.js'
import { loadConfig } from '../config/load.js'
import type { Config } from '../config/types.js'
import { startDaemon } from '../daemon.js'
import { exists } from '../disk/file.js'
import { daemonActor, type Model } from '../model/model.js'
import { putSecrets } from '../model/secrets.js'
import { run } from '../program/program.js'
import { diskFile, qemuArguments, THROUGH_PIPE, TPM_SOCKET } from '../rehearsal/machine.js'
import type { Plan, Result } from '../rehearsal/rehearsals.js'
import { Console, decided } from '../rehearsal/watch.js'
import { askDaemon } from './transfer.js'

const POLL_MS = 1000
/** A machine is stuck that is silent for longer than a unit is waited for (300 s), or than it unpacks. */
const QUIET_MS = { kvm: 360_000, tcg: 540_000 }
/** After the end of the boot something may still be on its way to the console. */
const LAST_MS = 1000
/** An installation onto a disk restarts the machine; one in memory does not. */
const MOST_BOOTS = 3
/** Bytes: free on the disk of the state, beside which a machine may write, and written to its disks. */
const LEAST_FREE = 2 ** 32
const MOST_WRITTEN = 2 ** 35
const PROBE_MS = 5000
/** The watcher ends the machine first, with a sentence. */
const SPARE_MS = 30_000

/**
 * Runs a rehearsal in its network namespace: the rehearsal controller and the machine that `plan.json` in the
 * directory describes. `say` gets the steps; the end is in `result.json`. Throws Error if it cannot run.
 */
export async function rehearse(directory: string, say: (line: string) => void): Promise<void> {
  const plan = JSON.parse(await readFile(join(directory, 'plan.json'), 'utf8')) as Plan
  const given = loadConfig(join(directory, 'svcd.ini'), plan.settings)
  const config = { ...given, ...plan.sections }
  const daemon = await startDaemon(config, createLog('warn'))
  await fill(daemon.model, plan)
  const accel = await acceleration(plan.qemu, directory)
  const stop = new AbortController()
  const limits = { cwd: directory, signal: stop.signal, timeLimitMs: plan.timeLimitMs + SPARE_MS }
  const secrets = plan.copy.secrets.flatMap(one => one.secrets.map(({ content }) => content))
  const screen = new Console(() => performance.now(), secrets)
  await prepare(plan, directory, limits)
  const machine = { ended: false, why: '' }
  const running = run(plan.qemu, qemuArguments(plan.machine, accel, plan.ovmf), {
    ...limits,
    wrapper: THROUGH_PIPE,
    onLine: line => screen.add(line)
  }).then(
    () => 'the machine was switched off',
    (error: Error) => error.message
  )
  void running.then(why => Object.assign(machine, { ended: true, why }))
  const seen = await watch(plan, config, { screen, machine, directory, say, quietMs: QUIET_MS[accel] })
  stop.abort()
  await running
  const result: Result = { ...seen, accel, serial: screen.lines }
  await writeFile(join(directory, 'result.json'), JSON.stringify(result), { mode: 0o600 })
  await daemon.close(0)
}

/** Puts the copies into the state of the rehearsal controller, as they are. */
async function fill(model: Model, { copy }: Plan): Promise<void> {
  await model.change(daemonActor, tx => {
    for (const [type, doc] of copy.objects) tx.put(type as 'node', doc.name, doc as never)
    for (const { owner, name, secrets } of copy.secrets)
      if (secrets.length > 0) putSecrets(tx, model.box, owner, name, secrets, true)
  })
}

/** A boot sector that counts to 67 million and then ends qemu with status 99. */
const COUNTING = Buffer.from('66b900000004664975fcb031e6f4f4', 'hex')

/** Returns kvm where it works: there are machines whose /dev/kvm opens, and whose guests stand still. */
async function acceleration(qemu: string, directory: string): Promise<'kvm' | 'tcg'> {
  const sector = Buffer.alloc(512)
  COUNTING.copy(sector)
  sector.writeUInt16LE(0xaa55, 510)
  await writeFile(join(directory, 'probe.raw'), sector)
  const words = ['-accel', 'kvm', '-m', '16', '-nodefaults', '-display', 'none']
  const disk = ['-drive', 'if=ide,format=raw,file=probe.raw']
  const exit = ['-device', 'isa-debug-exit,iobase=0xf4,iosize=4']
  const limits = { cwd: directory, timeLimitMs: PROBE_MS, ok: [99] }
  return run(qemu, [...words, ...disk, ...exit], limits).then(
    () => 'kvm',
    () => 'tcg'
  )
}

/** Makes disks, firmware settings and the TPM, and waits for the files that GRUB is loaded from. */
async function prepare(
  { machine, ovmf }: Plan,
  directory: string,
  limits: { readonly cwd: string; readonly signal: AbortSignal; readonly timeLimitMs: number }
): Promise<void> {
  const at = (name: string) => join(directory, name)
  for (const [i, { mib }] of machine.disks.entries()) {
    await (await open(at(diskFile(i)), 'wx', 0o600)).close()
    await truncate(at(diskFile(i)), mib * 1_048_576)
  }
  if (ovmf) await copyFile(ovmf.settings, at('settings.fd'))
  if (machine.tpm) {
    const control = ['--ctrl', `type=unixio,path=${TPM_SOCKET}`]
    run('swtpm', ['socket', '--tpm2', '--tpmstate', 'dir=.', ...control], limits).catch(() => {})
    await there(at(TPM_SOCKET))
  }
  if (machine.loader === 'grub') await there(at('tftp/shimx64.efi'))
}

async function there(file: string): Promise<void> {
  for (let tries = 0; !(await exists(file)); tries++) {
    if (tries > 300) throw new Error(`${file} was not made within 30 s`)
    await wait(100)
  }
}

interface Watched {
  readonly screen: Console
  readonly machine: { readonly ended: boolean; readonly why: string }
  readonly directory: string
  readonly quietMs: number
  readonly say: (line: string) => void
}

/** Asks the rehearsal controller what it sees until that is decided, or nothing more is to come. */
async function watch(plan: Plan, config: Config, watched: Watched) {
  const { screen, machine, directory, say, quietMs } = watched
  const began = performance.now()
  const faults = new Set<string>()
  let told = 0
  for (;;) {
    await wait(POLL_MS)
    const { rule, verdict, boots } = await askWhy(config, plan.node)
    const steps = boots.flatMap(boot => objectsIn(boot.steps))
    for (; told < steps.length; told++) {
      screen.lastMs = performance.now()
      const { step, about } = steps[told] as JsonObject
      say(`${((performance.now() - began) / 1000).toFixed(0)} s: ${step} ${oneLine(String(about), 200)}`)
    }
    const isUp = steps.some(
      ({ step, about }) => step === 'running' || /^installer\.completed: rescue/.test(`${about}`)
    )
    let well = decided(rule, isUp)
    const end = (fault: string) => {
      faults.add(fault)
      well ??= false
    }
    const passed = performance.now() - began
    if (screen.hasEnded) well ??= false
    if (well === undefined) {
      if (machine.ended) end(`the machine ended: ${machine.why}`)
      else if (boots.length > (plan.machine.disks.length === 0 ? 1 : MOST_BOOTS))
        end(`it was started ${boots.length} times`)
      else if (performance.now() - screen.lastMs > quietMs) end(`nothing was seen for ${quietMs / 1000} s`)
      else if (passed > plan.timeLimitMs) end('[rehearsal] time_limit is over')
      else if (await isFull(directory, plan.machine.disks.length)) end('it wrote too much')
    }
    if (well === undefined) continue
    await wait(LAST_MS)
    const all = [...new Set([...screen.faults, ...faults])]
    const seconds = Math.round(passed / 1000)
    return { well: well && all.length === 0, verdict, rule, faults: all, seconds, steps }
  }
}

async function isFull(directory: string, disks: number): Promise<boolean> {
  const { bavail, bsize } = await statfs(directory)
  let written = 0
  for (let i = 0; i < disks; i++) written += 512 * (await stat(join(directory, diskFile(i)))).blocks
  return bavail * bsize < LEAST_FREE || written > MOST_WRITTEN
}

async function askWhy(config: Config, node: string) {
  const ask = async (word: string) => {
    const answer = JSON.parse(String(await askDaemon(config, 'GET', `/monitor/node/${node}/${word}`)))
    return answer.monitor[word.slice(1)][node]
  }
  const { rule, verdict } = (await ask('_why')) as { rule: string; verdict: string }
  const { boots } = (await ask('_boots')) as { boots: readonly JsonObject[] }
  return { rule, verdict, boots }
}
