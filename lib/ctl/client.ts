import { constants } from 'node:fs'
import { chmod, lstat, mkdir, open, readFile, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { didYouMean } from '../base/did-you-mean.js'
import { type JsonValue, strictUtf8 } from '../base/json.js'
import { removeLeftovers, replaceFile, unlessMissing } from '../disk/file.js'
import { withLock } from '../disk/lock-file.js'
import type { TypeName } from '../model/docs.js'
import { objectTypes } from '../model/types.js'
import { versionLine } from '../version.js'
import { Controller, controllerUrl, userOf } from './controller.js'
import { bashCompletion, commands, help, typeHelp } from './help.js'
import {
  byName,
  countOf,
  formats,
  type Options,
  optionTable,
  Session,
  type Verb,
  type Verbs
} from './session.js'
import {
  clean,
  cleanLines,
  Failure,
  noController,
  paintFor,
  refused,
  type Terminal,
  wrongUsage
} from './terminal.js'
import { plainVerbs, verbsOf, wordVerbs } from './verbs.js'

const defaultUrl = 'http://127.0.0.1:7050'

/** Runs the client; returns its exit code (rules 14.3). Throws the error of stdout if its reader is gone. */
export async function client(words: readonly string[], terminal: Terminal): Promise<number> {
  try {
    await run(words, terminal)
    return 0
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    const lead = paintFor(terminal, 'err')('red', 'svcctl:')
    // Each wrong line of a table gets a line of its own.
    const ends = error.message.startsWith('the table is refused')
      ? /(?<=[:;]) (?=line \d|\d+ lines: )/g
      : /$^/
    terminal.err(`${lead} ${clean(error.message).replace(ends, '\n  ')}\n`)
    if (error.code === 2) terminal.err('Type `svcctl --help` for the commands and options.\n')
    return error.code
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: normalizedArguments(args),
      allowPositionals: true,
      options: optionTable
    })
  } catch (error) {
    // The rest of the message is advice about operands that begin with a hyphen.
    throw wrongUsage((error as Error).message.split(/\.\s/, 1)[0] ?? '')
  }
}

/** Turns `--sort -name` into `--sort=-name`, and `--field=value` into the word `field=value`. */
const normalizedArguments = (args: readonly string[]) =>
  args.flatMap((word, i) => {
    const next = args[i + 1]
    const [, field] = /^--([^=]+)=/.exec(word) ?? []
    if (field !== undefined && !isOption(field, args)) return [word.slice(2)]
    if (word === '--sort' && next !== undefined) return [`${word}=${next}`]
    return args[i - 1] === '--sort' ? [] : [word]
  })

/** Options of one command that are fields elsewhere. */
const ofCommand: Readonly<Record<string, string>> = {
  ...{ group: 'unknown', order: 'unknown', bmcsetup: 'unknown', role: 'token', days: 'token' }
}

/** Whether `--name=` is an option. */
const isOption = (name: string, args: readonly string[]) =>
  Object.hasOwn(optionTable, name) && args.includes(ofCommand[name] ?? (args[0] as string))

const isWord = (word: string): word is keyof typeof wordVerbs => Object.hasOwn(wordVerbs, word)
const isType = (word: string): word is TypeName => Object.hasOwn(objectTypes, word)

async function run(args: readonly string[], terminal: Terminal): Promise<void> {
  const { values: options, positionals } = parse(args)
  const [first = '', ...rest] = positionals
  if (options.help || first === 'help') {
    const about = first === 'help' ? rest[0] : first
    return terminal.out(about !== undefined && isType(about) ? typeHelp(about) : help())
  }
  if (options.version) {
    if (first !== '') throw wrongUsage('--version is a command of its own')
    return terminal.out(versionLine)
  }
  if (first === 'completion') {
    refuseOtherOptions('completion bash', options, [])
    if (rest.length !== 1 || rest[0] !== 'bash')
      throw wrongUsage('there is completion for bash: type completion bash')
    return terminal.out(bashCompletion())
  }
  if (first === 'login') {
    refuseOtherOptions(first, options, ['stdin', 'oidc'])
    if (rest.length > 1) throw wrongUsage('login takes one USER')
    if (options.oidc && (rest.length > 0 || options.stdin))
      throw wrongUsage('login --oidc takes no USER and no --stdin: the provider asks for both')
    if (options.oidc) return loginByDevice(await session(terminal, options, false))
    return login(await session(terminal, options, false), rest[0] ?? 'admin')
  }
  if (first === 'logout') {
    refuseOtherOptions(first, options, [])
    if (rest.length > 0) throw wrongUsage('logout takes no operand')
    const { controller } = await session(terminal, options, false)
    return new TokenCache(terminal.env).remove(controller.name)
  }
  if (first === 'token' && rest.length === 0) {
    refuseOtherOptions(first, options, [])
    const { controller } = await session(terminal, options, true)
    // An expired login is reported here rather than by the program that uses the token.
    await controller.json('GET', '/config/group', { fields: 'name' })
    return terminal.out(`${controller.token}\n`)
  }
  if (Object.hasOwn(plainVerbs, first)) return runVerb(terminal, options, '', plainVerbs, [first, ...rest])
  if (isType(first)) return runVerb(terminal, options, first, verbsOf(first), rest)
  if (isWord(first)) return runVerb(terminal, options, first, wordVerbs[first], rest)
  throw wrongUsage(
    first === ''
      ? 'which command?'
      : `unknown command ${first}${didYouMean(first, commands)}: ${commands.join(', ')}`
  )
}

async function runVerb<T extends string>(
  terminal: Terminal,
  options: Options,
  first: T,
  known: Verbs<T>,
  [word = '', ...operands]: readonly string[]
): Promise<void> {
  const all = byName(known)
  const verb = all.get(word)
  if (!verb) {
    const has = `${first} has ${Object.keys(known).join(', ')}`
    throw wrongUsage(
      word === '' ? `which verb? ${has}` : `unknown verb ${word}${didYouMean(word, [...all.keys()])}: ${has}`
    )
  }
  const command = `${first} ${word}`.trim()
  refuseOtherOptions(command, options, verb.options ?? [])
  const [least, most] = countOf(verb)
  const several = first === 'node' ? severalNodes(verb, operands) : ''
  if (operands.length < least || operands.length > most || operands.includes('') || several !== '')
    throw wrongUsage(`usage: svcctl ${command} ${verb.operands}`.trimEnd().concat(several))
  const last = operands.at(-1)
  if (verb.actions && last !== undefined && !verb.actions.includes(last))
    throw wrongUsage(`${word} takes ${verb.actions.join(', ')}, not ${last}`)
  await verb.run(await session(terminal, options, true), first, operands)
}

/** Returns a hint where several nodes are separate words although the verb takes one name or set. */
function severalNodes(verb: Pick<Verb, 'operands' | 'count' | 'assigns'>, words: readonly string[]): string {
  const { operands, assigns } = verb
  const end = words.findIndex(word => word.includes('='))
  const names =
    operands === 'NAME FIELD=VALUE...' && assigns
      ? words.slice(0, end < 0 ? words.length : end)
      : /^\[?(?:SET|NAME$)/.test(operands)
        ? words.slice(0, Math.max(0, words.length - countOf(verb)[1] + 1))
        : []
  return names.length > 1 ? `; several nodes are one word: ${names.join(',')}` : ''
}

function refuseOtherOptions(command: string, options: Options, taken: readonly (keyof Options)[]): void {
  for (const name of Object.keys(options) as (keyof Options)[])
    if (name !== 'url' && name !== 'cacert' && !taken.includes(name))
      throw wrongUsage(`${command} takes no --${name}`)
}

async function session(terminal: Terminal, options: Options, needsToken: boolean): Promise<Session> {
  const { env } = terminal
  const { output = 'text' } = options
  const named = formats.find(name => name === output)
  const format = named === 'yaml' ? 'json' : named
  if (!format) throw wrongUsage(`-o must be one of ${formats.join(', ')}, not ${output}`)
  const url = controllerUrl(options.url ?? (env.SVCD_URL || defaultUrl))
  if (options.cacert !== undefined && url.protocol !== 'https:')
    throw wrongUsage(`--cacert belongs to an https URL, and ${url.href} is none`)
  const ca = options.cacert ?? (env.SVCD_CACERT || undefined)
  const authority = ca !== undefined && url.protocol === 'https:' ? await terminal.file(ca) : undefined
  if (authority && !/-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/.test(authority.toString('latin1')))
    throw wrongUsage(`${ca} holds no certificate in PEM`)
  const { name } = new Controller(url, undefined, undefined)
  const token = needsToken ? await new TokenCache(env).read(name) : undefined
  return new Session(terminal, new Controller(url, token, authority), options, format)
}

async function login({ terminal, controller, options }: Session, user: string): Promise<void> {
  const { name } = controller
  warnOfPlain(terminal, controller, 'password')
  if (!options.stdin && !terminal.shows.in)
    throw wrongUsage('there is no terminal to ask for the password on: use --stdin')
  const password = options.stdin
    ? strictUtf8(await terminal.input())?.replace(/\r?\n$/, '')
    : await terminal.hidden(clean(`Password of ${user} at ${name}: `))
  if (password === undefined) throw wrongUsage('the password is not UTF-8')
  const { token } = await controller.json('POST', '/token', {}, { username: user, password })
  await keep(terminal, name, token, user)
}

function warnOfPlain(terminal: Terminal, { url, name }: Controller, what: string): void {
  if (url.protocol === 'http:' && !/^(?:127\.[\d.]+|localhost|\[::1\])$/.test(url.hostname))
    terminal.err(clean(`svcctl: the ${what} goes to ${name} in the clear, use an https URL`).concat('\n'))
}

async function keep(terminal: Terminal, name: string, token: JsonValue | undefined, user: string) {
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,4096}$/.test(token))
    throw noController(`no svcd at ${name}: it gives no token`)
  await new TokenCache(terminal.env).write(name, token)
  terminal.err(clean(`logged in as ${user} at ${name}`).concat('\n'))
}

/** Time that the controller gives a log-in. */
const MOST_LOGIN_MS = 600_000

/** Logs in by the device flow: a person agrees in a browser on any machine. Throws Failure 1 if refused. */
async function loginByDevice({ terminal, controller }: Session): Promise<void> {
  warnOfPlain(terminal, controller, 'token')
  const begun = await controller.json('POST', '/auth/device', {}, {})
  const { device, user_code, verification_uri, verification_uri_complete: whole, interval } = begun
  if (typeof device !== 'string') throw noController(`no svcd at ${controller.name}: it begins no log-in`)
  const open = typeof whole === 'string' ? `\nor open ${whole}` : ''
  terminal.err(`${cleanLines(`open ${verification_uri} and type the code ${user_code}${open}`)}\n`)
  const untilMs = performance.now() + MOST_LOGIN_MS
  for (let waitS = Math.min(Math.max(Number(interval) || 5, 1), 60); performance.now() < untilMs; ) {
    await sleep(waitS * 1000)
    const asked = controller.json('POST', '/auth/device/finish', {}, { device })
    const { token, slow } = await asked.catch((error: Failure) => {
      // Many log in at once, or the provider is away for a moment.
      if (error.status === 503) return { token: undefined, slow: true }
      throw error
    })
    if (token !== undefined) return keep(terminal, controller.name, token, userOf(String(token)) ?? 'USER')
    if (slow === true) waitS += 5
  }
  throw refused('nobody has agreed in ten minutes: begin a new log-in')
}

/** Reads a file that the command line names. Throws Failure 2. */
export async function namedFile(path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw wrongUsage(`${path}: ${code === 'ENOENT' ? 'there is no such file' : `cannot be read: ${message}`}`)
  }
}

/** Bytes of the largest token file. */
const longest = 8192

/** The end of a name by write-file-atomic. Fewer digits may also be the path of another controller. */
const written = /\.\d{9,10}$/

/** The tokens of one user: a file for each controller, readable by that user alone (rules 14.1). */
class TokenCache {
  readonly #directory: string

  constructor(env: Readonly<Record<string, string | undefined>>) {
    const given = env.XDG_CACHE_HOME ?? ''
    // The XDG standard ignores relative paths.
    const home = env.HOME === undefined || env.HOME === '' ? homedir() : env.HOME
    this.#directory = join(isAbsolute(given) ? given : join(home, '.cache'), 'svcd')
  }

  /** Returns the token for a controller, if any. Throws Failure 1 if other users could have read it. */
  async read(controller: string): Promise<string | undefined> {
    const file = this.#file(controller)
    // svcctl never creates links or pipes here.
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
    const unreadable = (error: Error) => refused(`the token cannot be read: ${error.message}`)
    const handle = await unlessMissing(open(file, flags), undefined).catch(error => {
      throw unreadable(error)
    })
    if (!handle) return undefined
    try {
      const { mode, uid, size } = await handle.stat()
      const isOurs = (mode & constants.S_IFMT) === constants.S_IFREG && uid === process.getuid?.()
      if (!isOurs || (mode & 0o077) !== 0 || size > longest)
        throw refused(
          `${file}: others may have read or written this token, it is not used; type: svcctl login USER`
        )
      return (await handle.readFile('utf8')).trim()
    } finally {
      await handle.close()
    }
  }

  /** Stores a token. Throws Failure 1 if other users could read it. */
  async write(controller: string, token: string): Promise<void> {
    const directory = this.#directory
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 })
      const found = await lstat(directory)
      if (!found.isDirectory() || found.uid !== process.getuid?.())
        throw new Error(`${directory} is no directory of yours; remove it, or set XDG_CACHE_HOME`)
      if ((found.mode & 0o077) !== 0) await chmod(directory, 0o700)
      await this.#alone(controller, async file => {
        await removeLeftovers(file, written)
        // svcctl has made no link here, and reads none.
        if ((await unlessMissing(lstat(file), undefined))?.isSymbolicLink()) await rm(file)
        await replaceFile(file, `${token}\n`)
      })
    } catch (error) {
      throw refused(`the token cannot be kept: ${(error as Error).message}`)
    }
  }

  /** Removes a token, and what a killed login left. Throws Failure 1. */
  async remove(controller: string): Promise<void> {
    try {
      await rm(this.#file(controller), { force: true })
      await unlessMissing(
        this.#alone(controller, file => removeLeftovers(file, written)),
        undefined
      )
    } catch (error) {
      throw refused(`the token cannot be removed: ${(error as Error).message}`)
    }
  }

  /** Runs work on the file of a controller while no other svcctl writes it. */
  #alone(controller: string, work: (file: string) => Promise<void>): Promise<void> {
    const file = this.#file(controller)
    return withLock({ lock: `${file}.lock`, file, busy: `another svcctl is writing ${file}` }, () =>
      work(file)
    )
  }

  #file(controller: string): string {
    return join(this.#directory, `token-${encodeURIComponent(controller)}`)
  }
}
