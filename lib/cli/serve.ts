import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Config } from '../config/types.js'
import { startDaemon } from '../daemon.js'
import { startWork } from '../helper/start.js'
import { createLog } from '../log.js'
import { banner, clientCommand } from './banner.js'
import { boundHeap } from './heap.js'
import { checkOwner } from './owner.js'

const graceMs = 10_000
// Long: a machine that is busy, as when it starts, takes its time; systemd waits for the word.
const notifyTimeoutMs = 60_000

/**
 * Runs the daemon until the first SIGTERM or SIGINT, then lets what is under way finish for up to 10 s. A
 * second signal calls `abort`. `program` is the path that svcd was started by, `helper` the command that starts a helper for root's
 * work. Signals that arrive while the daemon starts are obeyed once it has started.
 * @throws whatever keeps the daemon from starting or from closing in order
 */
export async function serve(
  config: Config,
  abort: () => void,
  { program, helper }: { readonly program: string; readonly helper: readonly string[] }
): Promise<void> {
  boundHeap()
  const log = createLog(config.log.level)
  const foreign = await checkOwner(config)
  if (foreign) {
    const { path, user, wayOut } = foreign
    log.warn(
      `${path} belongs to user ${user}, who cannot read what svcd makes as root: stop it, type ${wayOut}, and start it as that user (systemctl start svcd)`
    )
  }
  const stopped = new Promise<NodeJS.Signals>(resolve => {
    let first = true
    const onSignal = (signal: NodeJS.Signals) => {
      if (!first) abort()
      first = false
      resolve(signal)
    }
    process.on('SIGTERM', onSignal)
    process.on('SIGINT', onSignal)
  })
  const daemon = await startDaemon(config, log, Date.now, startWork(config.image.helper, helper))
  // Nobody may read it: that ends nothing.
  process.stdout.on('error', () => {})
  process.stdout.write(banner(config, daemon, await clientCommand(program)))
  if (process.env.NOTIFY_SOCKET)
    await notifyReady().catch((error: Error) =>
      log.warn(`systemd was not told of readiness: ${error.message}`)
    )
  log.info(`${await stopped}: finishing what is under way, ${graceMs / 1000} s at most`)
  await daemon.close(graceMs)
}

/** Tells systemd by its own program: the socket takes datagrams, which Node cannot send to a path. */
async function notifyReady(): Promise<void> {
  await promisify(execFile)('systemd-notify', ['--ready'], { timeout: notifyTimeoutMs })
}
