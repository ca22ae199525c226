import { dirname, join, relative, resolve } from 'node:path'
import { adminPasswordFile } from '../auth/admin-password.js'
import { frontWarnings, reachability, userWarnings } from '../config/reachability.js'
import type { Config } from '../config/types.js'
import { isWildcard } from '../config/values.js'
import { locate } from '../program/locate.js'

/** svcctl as it can be typed here: the one beside `program` by its path, unless the shell finds it by its name. */
export async function clientCommand(program: string): Promise<string> {
  const file = await locate(join(resolve(dirname(program)), 'svcctl'))
  const found = await locate('svcctl', process.env.PATH ?? '')
  if (file === undefined || (found !== undefined && resolve(found) === file)) return 'svcctl'
  const here = process.cwd()
  const near = relative(here, file)
  if (here === '/' || near.startsWith('..')) return quoted(file)
  return quoted(near.includes('/') ? near : `./${near}`)
}

const quoted = (text: string) => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)

/**
 * What `svcd serve` prints once it listens: the address, what keeps nodes from it, where the first password is, and what to
 * type next. `svcctl`: as it can be typed here.
 */
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
          `with TLS it listens on ${isWildcard(address) ? `all addresses, port ${tlsPort}` : `https://${host}:${tlsPort}`}`
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
