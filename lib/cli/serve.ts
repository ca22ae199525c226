import { executionAsyncResource } from 'node:async_hooks'
import { dirname, join, relative, resolve } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { adminPasswordFile } from '../auth/logins.js'
import { createLog } from '../base/log.js'
import { frontWarnings, reachability, userWarnings } from '../config/reachability.js'
import type { Config } from '../config/types.js'
import { isWildcard } from '../config/values.js'
import { startDaemon } from '../daemon.js'
import { openHelper } from '../helper/start.js'
import { locate, run } from '../program/program.js'
import { checkOwner } from './owner.js'

const keptTicks: object[] = []
const graceMs = 10_000
// A machine is busy while it boots, and systemd waits for the notification.
const notifyTimeoutMs = 60_000

/**
 * Runs the daemon until SIGTERM or SIGINT, then gives running work up to 10 s; a second signal calls `abort`.
 * `program`: the path of svcd, `helper`: the command that starts a helper. A signal during the start takes
 * effect after it. Throws Error if it cannot start, or close in order.
 */
export async function serve(
  config: Config,
  abort: () => void,
  { program, helper }: { readonly program: string; readonly helper: readonly string[] }
): Promise<void> {
  // The heap stays close to what is used (rules 2.19): V8 lets it grow fourfold where memory is plenty.
  setFlagsFromString('--heap-growing-percent=50')
  // A full collection that finds none of node's tick objects alive drops their hidden class. V8 then makes
  // each by its slow path for good: a request, which has nine, takes 3 to 5 microseconds more.
  process.nextTick(() => keptTicks.push(executionAsyncResource()))
  const log = createLog(config.log.level)
  const foreign = await checkOwner(config)
  if (foreign) {
    const { path, user, wayOut } = foreign
    log.warn(
      `${path} belongs to user ${user}, who cannot read what svcd makes as root: stop it, type ` +
        `${wayOut}, and start it as that user (systemctl start svcd)`
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
  const daemon = await startDaemon(config, log, Date.now, openHelper(config.image.helper, helper))
  // A closed stdout must not end the daemon.
  process.stdout.on('error', () => {})
  process.stdout.write(banner(config, daemon, await clientCommand(program)))
  // Node cannot send datagrams to a path.
  if (process.env.NOTIFY_SOCKET)
    await run('systemd-notify', ['--ready'], { env: process.env, timeLimitMs: notifyTimeoutMs }).catch(
      (error: Error) => log.warn(`systemd was not told of readiness: ${error.message}`)
    )
  log.info(`${await stopped}: finishing what is under way, ${graceMs / 1000} s at most`)
  await daemon.close(graceMs)
}

/** Returns how to type svcctl here: by name if the shell finds it, else the path beside `program`. */
async function clientCommand(program: string): Promise<string> {
  const file = await locate(join(resolve(dirname(program)), 'svcctl'))
  const found = await locate('svcctl', process.env.PATH ?? '')
  if (file === undefined || (found !== undefined && resolve(found) === file)) return 'svcctl'
  const here = process.cwd()
  const near = relative(here, file)
  if (here === '/' || near.startsWith('..')) return quoted(file)
  return quoted(near.includes('/') ? near : `./${near}`)
}

const quoted = (text: string) => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)

/** The text of `svcd serve` once it listens. `svcctl`: how to type it here. */
export function banner(
  config: Config,
  listening: { address: string; port: number; tlsPort?: number | undefined },
  svcctl: string
): string {
  const { address, port, tlsPort } = listening
  const v6 = address.includes(':')
  const local = isWildcard(address) ? (v6 ? '::1' : '127.0.0.1') : address
  const host = v6 ? `[${local}]` : local
  const base = `http://${host}:${port}`
  const first = config.users.length === 0
  const user = first ? 'admin' : config.users[0]?.name
  const file = adminPasswordFile(config.paths.state)
  // The file holds letters, digits, - and _, so it needs no escaping inside the JSON.
  const body = first
    ? `"{\\"username\\":\\"admin\\",\\"password\\":\\"$(cat ${quoted(file)})\\"}"`
    : `'{"username":"${user}","password":"…"}'`
  const where = isWildcard(address) ? `all addresses, port ${port}` : base
  const login = `${svcctl} login ${user}${base === 'http://127.0.0.1:7050' ? '' : ` --url ${quoted(base)}`}`
  return [
    `svcd listens on ${where}; nodes use ${config.http.urls.join(', ')}`,
    ...(tlsPort === undefined
      ? []
      : [
          'with TLS it listens on ' +
            `${isWildcard(address) ? `all addresses, port ${tlsPort}` : `https://${host}:${tlsPort}`}`
        ]),
    ...[...reachability(config, []), ...frontWarnings(config), ...userWarnings(config)].map(
      warning => `warning: ${warning}`
    ),
    ...(first ? [`the password of the first user, admin, is in ${file}`] : []),
    `next, open ${base}/ in a browser, or type: ${login}`,
    'next, ask for a token:',
    `  curl -d ${body} '${base}/token'`,
    ''
  ].join('\n')
}
