import { connect, isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import { Client, type Entry, Filter, ResultCodeError } from 'ldapts'
import type { Grant } from '../auth/grant.js'
import { unavailable } from '../base/errors.js'
import { escapeControls, type Log } from '../base/log.js'
import { ThrottledWarning } from '../base/rate-limit.js'
import { isThisMachine } from '../base/request-source.js'
import { certificateFault, trustFor } from '../client/certificates.js'
import type { Config } from '../config/types.js'
import { readPassword, readRegularFile } from '../disk/file.js'
import { grantBy, isUserName } from './roles.js'

const LIMIT_MS = 4000
/** Nobody is sent to a directory that has just failed: what waits would wait for nothing. */
const REST_MS = 5000
/** A person with 5,000 groups has half of it. */
const MOST_BYTES = 1024 * 1024
const MOST_GROUPS = 5000

/** Results of a bind that say no to the user (RFC 4511). The others say that the server cannot tell. */
const REFUSALS = [19, 32, 48, 49, 50, 53]

interface LdapOptions {
  readonly settings: Config['auth']
  readonly log: Log
  /** Monotonic milliseconds. */
  readonly ticks: () => number
  /** Milliseconds that each server has for a log-in. */
  readonly limitMs?: number
}

/** A failure with a message that begins with its key of the ini. */
class LdapFault extends Error {}

/** Verifies passwords by binding to the servers of a directory: search, groups, bind (rules 5.10). */
export class Ldap {
  readonly source = 'ldap'
  readonly #warning: ThrottledWarning
  /** The server that answered last is asked first. */
  #first = 0
  #restUntil = 0

  constructor(private readonly o: LdapOptions) {
    this.#warning = new ThrottledWarning(o.log)
  }

  /**
   * Returns a user, as the directory spells the name, with the role of the user's groups; undefined for a
   * wrong name or password, or without a role. Throws ServiceError 503 if no server can tell.
   */
  async login(name: string, password: string): Promise<{ user: string; grant: Grant } | undefined> {
    const { settings, ticks } = this.o
    // A server takes a bind without a password for one of nobody, and agrees.
    if (password === '' || password.includes('\0') || !isUserName(name)) return undefined
    if (ticks() < this.#restUntil) throw unanswered()
    const urls = settings.ldap_url
    let isAnswered = false
    for (let i = 0; i < urls.length; i++) {
      const at = (this.#first + i) % urls.length
      try {
        const login = await ask(this.o, urls[at] as string, client => this.#verify(client, name, password))
        this.#first = at
        return login
      } catch (error) {
        const { message, cause } = error as Error
        this.#warning.say(`a log-in fails: ${message}`, urls[at])
        isAnswered ||= codeOf(cause) !== undefined
      }
    }
    // An answer that is an error may be due to this log-in alone.
    if (!isAnswered) this.#restUntil = ticks() + REST_MS
    throw unanswered()
  }

  async #verify(client: Client, name: string, password: string) {
    const { settings, log } = this.o
    const { ldap_base, ldap_filter, ldap_group_filter, ldap_roles } = settings
    const search = (filter: string, sizeLimit: number, attributes: string[]) =>
      client.search(ldap_base, { filter, sizeLimit, attributes, timeLimit: LIMIT_MS / 1000 })
    const wanted = ['uid', 'sAMAccountName', 'memberOf']
    const { searchEntries: found } = await search(filled(ldap_filter, { user: name }), 2, wanted)
    const [entry] = found
    if (!entry || entry.dn === '') return undefined
    if (found.length > 1) {
      this.#warning.say(`[auth] ldap_filter: several entries are user ${name}: it is refused`)
      return undefined
    }
    const [user = name] = [...valuesOf(entry, 'uid'), ...valuesOf(entry, 'samaccountname')]
    if (!isUserName(user)) return undefined
    const words = { user, dn: entry.dn }
    const groups = new Set<string>(valuesOf(entry, 'memberof').flatMap(namesOf))
    if (ldap_group_filter !== '') {
      const more = await search(filled(ldap_group_filter, words), MOST_GROUPS, ['1.1'])
      for (const { dn } of more.searchEntries) for (const group of namesOf(dn)) groups.add(group)
    }
    // Asked last: from then on the connection has the rights of the user.
    if (!(await isPassword(client, entry.dn, password))) return undefined
    const grant = grantBy(ldap_roles, group =>
      groups.has(group.includes('=') ? plainDn(group) : group.toLowerCase())
    )
    if (!grant) log.info(`user ldap:${user} has no role: [auth] ldap_roles names none of its groups`)
    return grant && { user, grant }
  }

  /** Returns what is wrong with each server (`svcd check`), as messages that begin with a key of the ini. */
  async faults(): Promise<string[]> {
    const { ldap_url, ldap_base, ldap_filter, ldap_group_filter } = this.o.settings
    const nobody = { user: 'svcd-check', dn: ldap_base }
    const filters = [ldap_filter, ldap_group_filter].filter(text => text !== '')
    const found = ldap_url.map(url =>
      ask(this.o, url, async client => {
        try {
          for (const filter of filters.map(text => filled(text, nobody)))
            await client.search(ldap_base, { filter, sizeLimit: 2, attributes: ['1.1'] })
        } catch (error) {
          throw codeOf(error) === 32 ? new LdapFault(`[auth] ldap_base: ${url} has no ${ldap_base}`) : error
        }
      }).then(
        () => [],
        (error: Error) => [error.message]
      )
    )
    return (await Promise.all(found)).flat()
  }
}

const unanswered = () =>
  unavailable(
    'the directory does not answer, users of the ini can log in; on the controller, type: svcd check',
    'directory-unavailable'
  )

const filled = (filter: string, words: Readonly<Record<string, string>>) =>
  filter.replace(/\{(user|dn)\}/g, (_, word: string) => Filter.escape(words[word] ?? ''))

/** The values of an attribute; servers spell its name as they like. */
const valuesOf = (entry: Entry, name: string): string[] =>
  Object.entries(entry)
    .filter(([key]) => key.toLowerCase() === name)
    .flatMap(([, values]) => values as string | string[] | Buffer)
    .filter(value => typeof value === 'string')

const codeOf = (error: unknown) => (error instanceof ResultCodeError ? error.code : undefined)

async function isPassword(client: Client, dn: string, password: string): Promise<boolean> {
  try {
    await client.bind(dn, password)
    return true
  } catch (error) {
    if (REFUSALS.includes(codeOf(error) ?? 0)) return false
    throw error
  }
}

/** The names of a group in `ldap_roles`: its DN, and its cn. */
function namesOf(dn: string): string[] {
  const plain = plainDn(dn)
  const [, cn] = /^cn=([^,+]+)/.exec(plain) ?? []
  return cn === undefined ? [plain] : [plain, cn]
}

/**
 * One spelling of a DN, to compare it: small letters, no blanks around signs, each escaped sign as its hex
 * digits. What is escaped stays escaped, so that no name of a group can look like a DN.
 */
export const plainDn = (dn: string): string =>
  dn
    .toLowerCase()
    .replace(/\\([0-9a-f]{2}|.)/gs, (_, sign: string) =>
      sign.length === 2 ? `\\${sign}` : `\\${Buffer.from(sign).toString('hex')}`
    )
    // Not /\s*([,=+])\s*/: with many blanks in a name that takes hours.
    .split(/([,=+])/)
    .map(part => part.trim())
    .join('')

/**
 * Connects to a server, binds as svcd, and asks it. Ends after `limitMs` in any case. Throws LdapFault with
 * the key of the ini and the way out.
 */
async function ask<T>(
  { settings, limitMs = LIMIT_MS }: LdapOptions,
  url: string,
  work: (client: Client) => Promise<T>
): Promise<T> {
  const { ldap_ca_certificate: caFile, ldap_bind_password_file: file, ldap_bind_dn, ldap_plain } = settings
  const connection = new Connection(url)
  try {
    const ca = caFile === '' ? undefined : await readRegularFile(caFile).catch(faultOf('ldap_ca_certificate'))
    const password =
      ldap_bind_dn === '' ? '' : await readPassword(file).catch(faultOf('ldap_bind_password_file'))
    return await connection.within(limitMs, async () => {
      const client = connection.open(trustFor(true, ca))
      if (!ldap_plain) await connection.encrypt(client)
      if (ldap_bind_dn !== '' && !(await isPassword(client, ldap_bind_dn, password)))
        throw new LdapFault(
          `[auth] ldap_bind_dn: ${url} refuses ${ldap_bind_dn} with the password in ${file}; ` +
            'correct these two'
        )
      return work(client)
    })
  } catch (error) {
    if (error instanceof LdapFault) throw error
    throw new LdapFault(`[auth] ldap_url: ${url}: ${reasonOf(error as Error)}`, { cause: error })
  } finally {
    connection.end(new Error('the log-in is over'))
  }
}

const faultOf = (key: string) => (error: Error) => {
  throw new LdapFault(`[auth] ${key}: ${reasonOf(error)}`, { cause: error })
}

function reasonOf(error: NodeJS.ErrnoException): string {
  const fault = certificateFault(error.code, 'ldap')
  if (fault) return `${fault.what}; ${fault.wayOut}`
  const text = error.message.trim().split('\n').at(-1) ?? ''
  const code = codeOf(error)
  return escapeControls(code === undefined ? text : `it answers with code ${code}: ${text}`).slice(0, 500)
}

/** One connection to a server, which may be hostile: what it sends has a bound, and it cannot throw. */
class Connection {
  readonly #url: URL
  readonly #sockets: Socket[] = []
  #tls: ConnectionOptions = {}

  constructor(url: string) {
    this.#url = new URL(url)
  }

  open(trust: ConnectionOptions): Client {
    const host = this.#url.hostname.replace(/^\[|\]$/g, '')
    const isTls = this.#url.protocol === 'ldaps:'
    this.#tls = { ...trust, host, ...(isIP(host) ? {} : { servername: host }) }
    return new Client({
      url: this.#url.href,
      createConnection: ((port: number, host: string) => this.#add(0, connect(port, host))) as typeof connect,
      createSecureConnection: ((...args: Parameters<typeof connectTls>) =>
        this.#add(isTls ? 0 : 1, connectTls(...args))) as typeof connectTls,
      ...(isTls ? { tlsOptions: this.#tls } : {})
    })
  }

  /** Encrypts a connection to another machine. Throws if the server does not. */
  async encrypt(client: Client): Promise<void> {
    if (this.#url.protocol === 'ldaps:' || isThisMachine(this.#url)) return
    await client.startTLS(this.#tls)
    // Bytes that came before TLS would be read as if they had come through it.
    const { messageParser } = client as unknown as { messageParser: { buffer?: Buffer } }
    if (messageParser.buffer) throw new Error('it sends more than its answer before TLS')
  }

  async within<T>(ms: number, work: () => Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`it does not answer within ${ms / 1000} s`)), ms)
    })
    try {
      return await Promise.race([work(), late])
    } finally {
      clearTimeout(timer)
    }
  }

  end(reason: Error): void {
    // TLS before the connection below it: in the other order Node 20 crashes (SIGSEGV).
    for (const socket of this.#sockets.reverse()) socket.destroy(reason)
  }

  /** Guards a socket, of which there are `others` before it: the library connects anew when one ends. */
  #add<S extends Socket>(others: number, socket: S): S {
    if (this.#sockets.length !== others) {
      socket.on('error', () => undefined).destroy()
      // A new connection would have no TLS and no rights.
      throw new Error('it hangs up')
    }
    this.#sockets.push(socket)
    const emit = socket.emit.bind(socket)
    let bytes = 0
    socket.emit = ((event: string, ...given: unknown[]) => {
      // The library takes its own listeners away before the last error may come.
      if (event === 'error' && socket.listenerCount('error') === 0) return true
      if (event !== 'data') return emit(event, ...given)
      bytes += (given[0] as Buffer).length
      try {
        if (bytes > MOST_BYTES) throw new Error(`it sends more than ${MOST_BYTES} bytes`)
        // The parser of the library calls itself for each message, until the stack is full.
        emit(event, ...given)
      } catch (error) {
        socket.destroy(error as Error)
      }
      return true
    }) as S['emit']
    return socket
  }
}
