import { access, constants } from 'node:fs/promises'
import { dirname } from 'node:path'
import { type Problem, problemText } from '../base/errors.js'
import { type Config, locationOf } from '../config/types.js'
import { isMissing } from '../disk/file.js'
import { startAttached } from '../program/held-program.js'
import { nameOf } from '../program/system.js'
import { checkAll } from './checks.js'
import { checkOwner, handOverCommand, type UnitUser, unitUser } from './owner.js'

/**
 * Prints problems, warnings and notes on stderr, and `ok` on stdout if there is no problem; returns whether
 * there is none. If a unit runs svcd as another user, that one checks, by the command `self` (rules 7.7).
 * Problems of the ini suppress the warnings and notes of the rest.
 */
export async function check(config: Config, self: readonly string[], ofIni: readonly Problem[] = []) {
  const found: Problem[] = [...ofIni]
  const other =
    process.getuid?.() === 0
      ? await unitUser(config.file).catch(({ message }: Error) => {
          found.push({ file: config.file, message })
          return undefined
        })
      : undefined
  if (other) {
    process.stderr.write(`note: this is what user ${other.user} sees, as whom ${other.unit} runs svcd\n`)
    return checkAs(other, self)
  }
  const owner = await ownerFindings(config)
  const { problems, warnings, changedSettings } = await checkAll(config)
  found.push(...owner.problems, ...problems)
  const more = [
    ...warnings.map(warning => `warning: ${warning}`),
    ...[...owner.notes, ...changedSettings].map(note => `note: ${note}`)
  ]
  for (const line of [...found.map(problemText), ...(ofIni.length > 0 ? [] : more)])
    process.stderr.write(`${line}\n`)
  if (found.length > 0) return false
  process.stdout.write('ok\n')
  return true
}

/** Throws Error if the program cannot be started as that user. */
async function checkAs({ user, gid, groups }: UnitUser, self: readonly string[]): Promise<boolean> {
  const ids = [`--reuid=${user}`, `--regid=${gid}`, `--groups=${groups}`]
  const dropped = [...ids, '--inh-caps=-all', '--no-new-privs']
  const streams = ['inherit', 'inherit', 'inherit'] as const
  const code = await startAttached('setpriv', [...dropped, '--', ...self], streams).ended.catch(
    ({ message }: Error) => {
      throw new Error(`nothing is checked: ${message} (setpriv is in util-linux)`)
    }
  )
  if (code !== 0 && code !== 1)
    throw new Error(`nothing is checked: user ${user} cannot run ${self.slice(0, 2).join(' ')}`)
  return code === 0
}

/** A path of the ini, the needed access, its description, and the way out if not chmod. */
type Need = readonly [key: string, path: string, mode: number, what: string, wayOut?: string]

/** Checks whether this user may read and write the directories of svcd. */
async function ownerFindings(config: Config): Promise<{ problems: Problem[]; notes: string[] }> {
  const { paths, ssh, image, boot } = config
  const problems: Problem[] = []
  const user = await nameOf(process.getuid?.() ?? 0)
  const handOver = `type, as root, while svcd is stopped: ${handOverCommand(config, user)}`
  const { R_OK, W_OK, X_OK } = constants
  const foreign = await checkOwner(config).catch(({ message }: Error) => {
    const own = `${paths.state} `
    // The problem already names the directory.
    const rest = message.startsWith(own) ? message.slice(own.length) : message
    problems.push({ file: paths.state, message: rest })
    return undefined
  })
  const all = R_OK | W_OK | X_OK
  const state: Need = ['[paths] state', paths.state, all, 'read and write', handOver]
  const needs: Need[] = [
    ...(problems.length > 0 ? [] : [state]),
    ['[paths] files', paths.files, all, 'read and write', handOver],
    ['[image] directory', image.directory, X_OK, 'enter', handOver],
    ['[ssh] key', ssh.key, R_OK, 'read', `type: chown ${user} ${ssh.key}`],
    ['[paths] roles', paths.roles, R_OK | X_OK, 'read'],
    ['[paths] scripts', paths.scripts, R_OK | X_OK, 'read'],
    ['[boot] ipxe_directory', boot.ipxe_directory, R_OK | X_OK, 'read']
  ]
  for (const [key, path, mode, what, wayOut = `type: chmod a+rX ${path}`] of needs) {
    const refused = path === '' ? undefined : await refusal(path, mode)
    const message = `${key}: user ${user} may not ${what} ${refused}; ${wayOut}`
    if (refused) problems.push({ ...locationOf(config, message), message })
  }
  // Root may try an ini that no unit uses yet; then nothing has to be handed over.
  const note = `this is what root sees; ${foreign?.path} belongs to user ${foreign?.user}, who may see less`
  return { problems, notes: foreign ? [note] : [] }
}

/** Returns the path and reason of a missing permission, for a missing path that of its parent. */
async function refusal(path: string, mode: number): Promise<string | undefined> {
  try {
    await access(path, mode)
    return undefined
  } catch (error) {
    if (!isMissing(error)) return `${path} (${(error as NodeJS.ErrnoException).code})`
    // A path that is only read may be missing.
    return mode & constants.W_OK && path !== '/' ? refusal(dirname(path), mode) : undefined
  }
}
