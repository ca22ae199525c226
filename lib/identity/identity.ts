import { createLog, type Log } from '../base/log.js'
import type { Config } from '../config/types.js'
import type { Ldap } from './ldap.js'
import type { Oidc } from './oidc.js'

interface Options {
  readonly log: Log
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Monotonic milliseconds. */
  readonly ticks: () => number
  readonly key: Uint8Array
}

/** The parts that vouch for users of whom the ini knows nothing. */
interface Identity {
  readonly directory?: Ldap
  readonly oidc?: Oidc
}

/** Opens the directory and the provider of the ini, without a connection. Only those loads its library. */
export async function openIdentity({ auth, http }: Config, options: Options): Promise<Identity> {
  const pages = auth.oidc_url.length > 0 ? auth.oidc_url : http.urls
  const ldap = auth.ldap_url.length > 0 ? await import('./ldap.js') : undefined
  const oidc = auth.oidc_issuer === '' ? undefined : await import('./oidc.js')
  return {
    ...(ldap ? { directory: new ldap.Ldap({ ...options, settings: auth }) } : {}),
    ...(oidc ? { oidc: new oidc.Oidc({ ...options, settings: { ...auth, pages } }) } : {})
  }
}

/** Asks both for `svcd check`: what keeps people from logging in, each beginning with a key of the ini. */
export async function identityFindings(config: Config) {
  const quiet = { log: createLog('error', () => {}), now: Date.now, ticks: () => performance.now() }
  const { directory, oidc } = await openIdentity(config, { ...quiet, key: new Uint8Array() })
  const [ofLdap = [], ofOidc] = await Promise.all([directory?.faults(), oidc?.fault()])
  // As long as one server answers, people log in.
  const isDown = ofLdap.length === config.auth.ldap_url.length
  // A file that cannot be read is the same fault for each server.
  const told = [...new Set(ofLdap)]
  return {
    problems: [...(isDown ? told : []), ...(ofOidc === undefined ? [] : [ofOidc])],
    warnings: isDown ? [] : told
  }
}
