import { dirname, resolve } from 'node:path'
import { parseGrant } from '../auth/grant.js'
import { isPasswordHash, type User } from '../auth/passwords.js'
import { didYouMean } from '../base/did-you-mean.js'
import type { Problem } from '../base/errors.js'
import { type Key, table } from './keys.js'
import { type Entry, readText, scanLines } from './lines.js'
import { type Config, ConfigError, shown, type Values } from './types.js'
import { isWildcard, nameRule, nameRuleText, ValueError } from './values.js'

type SourceLocation = Pick<Problem, 'file' | 'line'>
interface RawValue {
  readonly key: string
  readonly value: string | undefined
  readonly place: SourceLocation
}
/** Section → key → the given value. */
type Sections = Map<string, Map<string, RawValue>>

/**
 * Reads and validates the whole ini (rules 7.3). Relative paths are relative to its directory. The result is
 * deeply frozen. `overrides` are literal `section.key=value`; the last one of a key wins, also over the ini.
 * @throws ConfigError with every problem, each with file and line, or `--set section.key`
 */
export function loadConfig(file: string, overrides: readonly string[]): Config {
  const { config, problems } = readConfig(file, overrides)
  if (!config || problems.length > 0) throw new ConfigError(problems)
  return config
}

/** Reads an ini for `svcd check`: invalid values are defaults; no `config` if directories may be unknown. */
export function readConfig(file: string, overrides: readonly string[]) {
  const path = resolve(file)
  const problems: Problem[] = []
  const given = collect(path, overrides, problems)
  const values = readValues(path, given, problems)
  const users = readUsers(given.get('users'), problems)
  checkTogether(values, (section, key, message) =>
    problems.push({ ...(given.get(section)?.get(key)?.place ?? { file: path }), message })
  )
  const isKnown = problems.every(({ message }) => isUnrelated.test(message))
  const config = isKnown ? configOf(path, overrides, given, withDefaults(path, values), users) : undefined
  return { config, problems: sortByLine(path, problems) }
}

/** Checks keys that belong together; reports the section and key that is given. */
function checkTogether(
  { http, controller, store, torrent, auth }: Values,
  report: (section: string, key: string, message: string) => void
): void {
  const { listen, tls_certificate, tls_port } = http
  const address = controller.address || listen?.address
  if (listen !== undefined && address === listen.address && isWildcard(listen.address))
    report('http', 'listen', '[controller] address is needed when [http] listen is all addresses')
  const needed = <K extends string>(
    section: string,
    values: Readonly<Record<K, string>>,
    one: K,
    other: K
  ) => {
    if ((values[one] === '') === (values[other] === '')) return
    const [has, lacks] = values[other] === '' ? [one, other] : [other, one]
    report(section, has, `[${section}] ${lacks} is needed when ${has} is given`)
  }
  needed('http', http, 'tls_certificate', 'tls_key')
  if (tls_certificate !== '' && tls_port !== 0 && tls_port === listen?.port)
    report('http', 'tls_port', `[http] tls_port must be another port than that of listen, ${listen.port}`)
  needed('store', store, 'cert', 'key')
  needed('store', store, 'user', 'password_file')
  checkAuth(auth, message => report('auth', /^\[auth\] (\w+)/.exec(message)?.[1] ?? '', message))
  const { seeder, seeder_url, seeder_watch } = torrent
  if (
    (seeder === 'aria2' && seeder_url === '') ||
    (seeder === 'transmission' && !(seeder_url || seeder_watch))
  ) {
    const or = seeder === 'aria2' ? 'is' : 'or seeder_watch is'
    report('torrent', 'seeder', `[torrent] seeder_url ${or} needed when seeder is ${seeder}`)
  }
}

/** Checks the keys of a directory and of a provider; each message begins with its key. */
function checkAuth(auth: Values['auth'], report: (message: string) => void): void {
  const { ldap_url = [], ldap_roles = [], oidc_issuer, oidc_roles = [] } = auth
  if (ldap_url.length > 0) {
    if (auth.ldap_base === '')
      report('[auth] ldap_url: ldap_base is needed as well, such as dc=example,dc=org')
    if (ldap_roles.length === 0)
      report('[auth] ldap_url: ldap_roles is needed as well, else nobody has a role')
    if (auth.ldap_filter === '')
      report('[auth] ldap_filter must not be empty, leave the line out for the usual one')
    if ((auth.ldap_bind_dn === '') !== (auth.ldap_bind_password_file === ''))
      report('[auth] ldap_bind_dn and ldap_bind_password_file are given together, or none of them')
  }
  if (!oidc_issuer) return
  if (auth.oidc_client_id === '') report('[auth] oidc_issuer: oidc_client_id is needed as well')
  if (oidc_roles.length === 0)
    report('[auth] oidc_issuer: oidc_roles is needed as well, else nobody has a role')
}

/** Matches problems of single keys that affect neither directories nor the location of objects. */
const isUnrelated = /^(?:unknown key .* in )?\[(?!(?:paths|image|store)\])\w+\]/

const eachKey = (read: (section: string, name: string, key: Key<unknown>) => unknown) =>
  Object.fromEntries(
    Object.entries(table).map(([section, keys]) => [
      section,
      Object.fromEntries(Object.entries(keys).map(([name, key]) => [name, read(section, name, key)]))
    ])
  )

const withDefaults = (file: string, values: Values): Values =>
  eachKey((section, name, key) => {
    const { [name]: value } = values[section as keyof Values] as Readonly<Record<string, unknown>>
    return value ?? key.kind(key.default, dirname(file))
  }) as Values

function configOf(
  path: string,
  overrides: readonly string[],
  given: Sections,
  values: Values,
  users: User[]
): Config {
  const { listen } = values.http
  const address = values.controller.address || listen.address
  const { url: urls, ...http } = values.http
  const [url = `http://${host(address)}:${listen.port}`, ...others] = urls
  return freeze({
    ...values,
    file: path,
    overriddenKeys: overrides.map(override => override.split('=', 1)[0] as string),
    keyLines: linesOf(given),
    http: { ...http, url, urls: [url, ...others] },
    controller: { ...values.controller, address },
    users
  })
}

const linesOf = (given: Sections): Record<string, number> =>
  Object.fromEntries(
    [...given].flatMap(([section, keys]) =>
      [...keys.values()].flatMap(({ key, place: { line } }) =>
        line === undefined ? [] : [[`${section}.${key}`, line]]
      )
    )
  )

const host = (address: string) => (address.includes(':') ? `[${address}]` : address)

/** Collects the known keys of the ini and the command line; the rest are problems. */
function collect(file: string, overrides: readonly string[], problems: Problem[]): Sections {
  const given: Sections = new Map([...Object.keys(table), 'users'].map(section => [section, new Map()]))
  const add = (section: string, key: string, value: string | undefined, place: SourceLocation) => {
    const known = Object.keys(table[section] ?? {})
    if (section === 'users' || known.includes(key)) given.get(section)?.set(key, { key, value, place })
    else if (given.has(section)) {
      const has = `[${section}]${didYouMean(key, known)}, which has ${known.join(', ')}`
      problems.push({ ...place, message: `unknown key ${shown(key)} in ${has}` })
    }
  }
  const unknownSection = (section: string, place: SourceLocation) => {
    if (given.has(section)) return
    const known = [...given.keys()]
    const meant = didYouMean(section, known)
    const message = `unknown section ${shown(section)}${meant}: there are ${known.join(', ')}`
    problems.push({ ...place, message })
  }

  const text = readText(file)
  if (typeof text !== 'string') problems.push(text)
  else {
    const scan = scanLines(file, text)
    problems.push(...scan.problems)
    for (const { name, line } of scan.sections) unknownSection(name, { file, line })
    for (const { section, key, value, line } of firstOfEach(file, scan.entries, problems))
      add(section, key, value, { file, line })
  }
  for (const override of overrides) {
    const [, section, key, value] = /^([^.=]*)\.([^=]*)=(.*)$/s.exec(override) ?? []
    const place = { file: `--set ${override.split('=', 1)[0]}` }
    if (section === undefined || key === undefined || value === undefined)
      problems.push({ ...place, message: 'must be section.key=value' })
    else {
      unknownSection(section, place)
      add(section, key, value, place)
    }
  }
  return given
}

function firstOfEach(file: string, entries: readonly Entry[], problems: Problem[]): Entry[] {
  const lines = new Map<string, number>()
  return entries.filter(({ section, key, line }) => {
    const id = JSON.stringify([section, key])
    const first = lines.get(id)
    if (first === undefined) return lines.set(id, line)
    problems.push({ file, line, message: `[${section}] ${shown(key)} is given in line ${first} already` })
    return false
  })
}

/** Parses every key of the table. Omits and reports invalid values. */
const readValues = (file: string, given: Sections, problems: Problem[]): Values =>
  eachKey((section, name, key) => {
    // A value with a reported fault is read as its default, so that it is reported once.
    const from = given.get(section)?.get(name)
    const value = from?.value ?? key.default
    const problem = (message: string) => {
      problems.push({ ...(from?.place ?? { file }), message: `[${section}] ${name} ${message}` })
    }
    if (/[\u0000-\u001f\u007f]/.test(value)) return problem('holds a control character')
    try {
      return key.kind(value, dirname(file))
    } catch (error) {
      if (!(error instanceof ValueError)) throw error
      const found = key.secret ? '' : `, not ${shown(value.replace(/(?<=\/\/)[^/@]*(?=@)/, '…'))}`
      return problem(`${error.message}${found}`)
    }
  }) as Values

function readUsers(given: ReadonlyMap<string, RawValue> = new Map(), problems: Problem[]): User[] {
  const users: User[] = []
  for (const { key: name, value, place } of given.values()) {
    const problem = (message: string) =>
      problems.push({ ...place, message: `[users] ${shown(name)} ${message}` })
    if (value === undefined) continue
    const [role = '', hash = '', ...rest] = value.split(/\s+/)
    if (!nameRule.test(name)) problem(`must be named with ${nameRuleText}`)
    else if (!isPasswordHash(hash) || rest.length > 0)
      problem('must have a role and a hash as `svcd passwd` prints them, and no more')
    else
      try {
        users.push({ name, ...parseGrant(role), hash })
      } catch (error) {
        problem(`has a role that ${(error as Error).message}`)
      }
  }
  return users
}

/** Sorts problems by line; those of the command line come last. */
function sortByLine(file: string, problems: readonly Problem[]): Problem[] {
  const rank = (problem: Problem) => (problem.file === file ? (problem.line ?? 0) : Number.MAX_SAFE_INTEGER)
  return problems.toSorted((a, b) => rank(a) - rank(b))
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    Object.values(value).forEach(freeze)
    Object.freeze(value)
  }
  return value
}
