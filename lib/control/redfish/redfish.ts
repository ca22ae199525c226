import { readRegularFile } from '../../disk/regular-file.js'
import type { Bmc } from '../bmc.js'
import type { Command } from '../commands.js'
import type { Visit } from '../visit.js'
import { Connection } from './connection.js'
import { identify } from './identify.js'
import { clearLog, listLog } from './log.js'
import { powerState, switchPower } from './power.js'
import { login } from './session.js'
import { systemOf } from './system.js'

/** What of the time is kept for the logout: a BMC has few sessions, and none may be left behind. */
const LOGOUT_MS = 2000

/**
 * Asks a BMC by Redfish. Gives the state of the power (`on`, `off`), the log, or ''. The session is always ended. Throws an
 * Error with the reason.
 */
export async function redfish(
  bmc: Bmc,
  command: Command,
  { port, timeLimitMs, signal, caFile }: Visit & { readonly caFile: string }
): Promise<string> {
  const { address, setup, verifyCertificate } = bmc
  const ca = caFile === '' || !verifyCertificate ? undefined : await certificates(caFile)
  const connection = new Connection({ address, port, setup, verifyCertificate, ca })
  const late = new Error(`no answer within ${timeLimitMs / 1000} s`)
  const logoutMs = Math.min(LOGOUT_MS, timeLimitMs / 4)
  const visit = bounded(timeLimitMs - logoutMs, late, signal)
  try {
    const session = await login(connection, bmc, visit.signal)
    try {
      const system = await systemOf(connection, session.root, bmc, visit.signal)
      switch (command) {
        case 'power status':
          return powerState(system)
        case 'chassis identify':
        case 'chassis noidentify':
          await identify(connection, system, command === 'chassis identify', visit.signal)
          return ''
        case 'sel list':
          return await listLog(connection, system, visit.signal)
        case 'sel clear':
          await clearLog(connection, system, visit.signal)
          return ''
        default:
          await switchPower(connection, system, command, visit.signal)
          return ''
      }
    } finally {
      const end = bounded(logoutMs, late)
      // What was asked for is done; a session that cannot be ended ends by its own time limit.
      await session.logout(end.signal).catch(() => {})
      end.release()
    }
  } finally {
    visit.release()
    connection.close()
  }
}

/** A signal that is aborted after a time with a reason, and when another one is. */
function bounded(ms: number, reason: Error, other?: AbortSignal) {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(reason), ms)
  const follow = () => controller.abort(other?.reason)
  if (other?.aborted) follow()
  other?.addEventListener('abort', follow)
  const release = () => {
    clearTimeout(timer)
    other?.removeEventListener('abort', follow)
  }
  return { signal: controller.signal, release }
}

async function certificates(file: string): Promise<Buffer> {
  try {
    return await readRegularFile(file)
  } catch (error) {
    throw new Error(`[control] ca_file cannot be read: ${(error as Error).message}`)
  }
}
