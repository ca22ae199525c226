import { randomBytes, scryptSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { Tokens } from '../../lib/auth/tokens.js'
import type { Controller } from './controller.js'
import { local } from './login.js'
import { populated } from './routes.js'

const hour = 3_600_000

/** What issues tokens with the key of a controller, at another time than now if need be. */
export function issuer(c: Controller, shiftMs = 0): Promise<Tokens> {
  const now = () => Date.now() + shiftMs
  return Tokens.open(join(c.directory, 'state'), { now, lifetimeMs: hour, nodeLifetimeMs: 4 * hour })
}

/** Everybody who may send a request, by the token sent; null: none. */
export interface Callers {
  readonly none: null
  readonly garbage: string
  readonly expired: string
  readonly viewer: string
  readonly admin: string
  /** The token in the install script of node n1. */
  readonly own: string
  /** That of node n2. */
  readonly other: string
}

/** As `svcd passwd` prints it, but that it costs next to nothing to check. */
export function cheapHash(password: string): string {
  const salt = randomBytes(16)
  const key = scryptSync(password, salt, 32, { N: 2, r: 1, p: 1 })
  return `$scrypt$N=2,r=1,p=1$${salt.toString('base64url')}$${key.toString('base64url')}`
}

export const passwords = { root: 'correct horse', alice: 'battery staple' }

/** Nodes n1 and n2, the users root (admin) and alice (viewer), and a token for everybody. */
export async function withUsers(
  test: Test
): Promise<{ c: Controller; as: Callers; firstPassword: string; firstToken: string }> {
  const c = await populated(test)
  await c.post('/config/node/n2', { group: 'compute' })
  const firstPassword = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8').trim()
  const firstToken = c.token
  Object.assign(c, {
    overrides: [
      ...c.overrides,
      `users.root=admin ${cheapHash(passwords.root)}`,
      `users.alice=viewer ${cheapHash(passwords.alice)}`
    ]
  })
  await c.restart()
  const [admin, viewer] = await Promise.all([
    c.login('root', passwords.root),
    c.login('alice', passwords.alice)
  ])
  c.token = admin
  const expired = (await issuer(c, -2 * hour)).issueUser(local('root', 'admin'))
  const [own, other] = await Promise.all([scriptToken(c, 'n1'), scriptToken(c, 'n2')])
  return {
    c,
    as: { none: null, garbage: 'garbage', expired, viewer, admin, own, other },
    firstPassword,
    firstToken
  }
}

/** The token that a node finds in its install script. */
export async function scriptToken(c: Controller, node: string): Promise<string> {
  const { config } = (await c.get(`/config/node/${node}`)).body
  const source = config.node[node].interfaces[0].ipaddress
  const { text } = await c.get(`/boot/install/${node}`, { token: null, source })
  const token = /^SVC_TOKEN='([^']+)'/m.exec(text)?.[1]
  if (token === undefined) throw new Error(`no token in the install script of ${node}: ${text.slice(0, 200)}`)
  return token
}
