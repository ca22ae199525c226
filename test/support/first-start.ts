import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Tokens } from '../../lib/auth/tokens.js'
import { local } from './login.js'
import { until } from './until.js'

const day = 24 * 3_600_000

/**
 * What a log-in of the first admin gives, made from the key of the state: to check a password takes half a
 * second of a core, and hundreds of tests begin with one. That a log-in gives this is shown in test/auth.
 */
export async function adminToken(
  stateDirectory: string,
  now: () => number = Date.now,
  lifetimeMs = day
): Promise<string> {
  const tokens = await Tokens.open(stateDirectory, { now, lifetimeMs, nodeLifetimeMs: lifetimeMs })
  return tokens.issueUser(local('admin', 'admin'))
}

/**
 * Waits for the ssh key, which is made behind the first start: tests look at what is in the state. `log`: the
 * daemon's.
 */
export function sshKeyMade(
  stateDirectory: string,
  settings: readonly string[],
  log: () => string
): Promise<void> {
  const directory = join(stateDirectory, 'ssh')
  const isMade = () =>
    existsSync(join(directory, 'id_ed25519')) && !readdirSync(directory).some(name => name.startsWith('new-'))
  const isOwn = !settings.some(setting => setting.startsWith('ssh.key='))
  return until(() => !isOwn || isMade() || log().includes('no grab and no push can start'))
}
