import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { failureLines, UsageError, usage } from './cli/usage.js'
import type { Config } from './config/types.js'

/** Runs a command; returns its exit code, or what a command that is done prints. */
type Command = (options: Options, args: readonly string[]) => Promise<number | string>

/** A command that needs the configuration, which is loaded first. */
const withConfig =
  (run: (config: Config, args: readonly string[], options: Options) => Promise<number | string>): Command =>
  async (options, args) =>
    run(await configOf(options), args, options)

// Each command loads only what it needs: `svcd passwd` works where the daemon's parts do not.
const commands = new Map(
  Object.entries<Command>({
    serve: withConfig(async (config, _args, options) => {
      await import('./cli/rooms.js')
      const { serve } = await import('./cli/serve.js')
      await serve(config, () => process.exit(1), {
        program: process.argv[1] ?? '',
        helper: [...self(), 'helper', ...given(options)]
      })
      return 0
    }),
    helper: withConfig(async config => {
      await (await import('./cli/helper.js')).helper(config)
      return 0
    }),
    async check(options) {
      const { readConfig } = await import('./config/load.js')
      const { config, problems } = readConfig(iniOf(options), options.set ?? [])
      const { ConfigError } = await import('./config/types.js')
      if (!config) throw new ConfigError(problems)
      const { check } = await import('./cli/check.js')
      const again = [...self(), 'check', ...given({ ...options, config: config.file })]
      return (await check(config, again, problems)) ? 0 : 1
    },
    export: withConfig(async config => {
      await (await import('./cli/transfer.js')).exportTo(config, process.stdout)
      return 0
    }),
    import: withConfig(async (config, [file = ''], options) => {
      const { importFrom, importTable } = await import('./cli/transfer.js')
      const system = otherSystems.find(name => options[name])
      const send = options.csv ? importTable : importFrom
      return `${await send(config, file, options.yes ?? false, system)}\n`
    }),
    backup: withConfig(async (config, [file = ''], { images = false }) => {
      const told = await (await import('./cli/backup.js')).backup(config, file, images)
      if (file !== '-') return told
      process.stderr.write(told)
      return 0
    }),
    async restore(options, [file = '']) {
      const { restore } = await import('./cli/restore.js')
      const { config = existsSync('/etc/svcd') ? installed : checkout, set = [], force = false } = options
      return restore({ file, ini: config, set, force })
    },
    store: withConfig(async (config, words) =>
      (await import('./cli/store-copy.js')).copyStore(config, words)
    ),
    async log(options, [word = '']) {
      if (word !== 'show') throw new UsageError('log takes one show')
      const config = await configOf(options)
      const { showLog } = await import('./cli/log-show.js')
      return showLog(config, line => process.stdout.write(`${line}\n`)) ? 0 : 1
    },
    join: withConfig(async (config, [source = '']) =>
      (await import('./cli/join.js')).joinControllers(config, source)
    ),
    osimage: withConfig(async (config, words) =>
      (await import('./cli/image-shell.js')).osimageShell(config, words)
    ),
    async rehearse(_options, [directory = '']) {
      await import('./cli/rooms.js')
      const { rehearse } = await import('./cli/rehearse.js')
      await rehearse(directory, text => process.stdout.write(`${text}\n`))
      return 0
    },
    keys: withConfig(async (config, words) => (await import('./cli/site-keys.js')).siteKeys(config, words)),
    async passwd({ role = 'admin', stdin = false }, [user = '']) {
      return (await import('./cli/passwd.js')).passwd(user, role, stdin)
    },
    async version() {
      return (await import('./version.js')).versionLine
    }
  })
)

/** The systems whose files `import` reads, each an option. */
const otherSystems = ['luna2', 'warewulf', 'xcat'] as const

const operands: Readonly<Record<string, string>> = {
  passwd: 'USER',
  osimage: 'shell NAME',
  import: 'FILE',
  backup: 'FILE',
  restore: 'FILE',
  store: 'copy FROM TO',
  log: 'show',
  rehearse: 'DIRECTORY',
  join: '[USER@]HOST[:/STATE-DIRECTORY]|/DIRECTORY'
}

const installed = '/etc/svcd/svcd.ini'
const checkout = fileURLToPath(new URL('../etc/svcd.ini', import.meta.url))

function iniOf({ config }: Options): string {
  return config ?? (existsSync(installed) ? installed : checkout)
}

async function configOf(options: Options): Promise<Config> {
  const { loadConfig } = await import('./config/load.js')
  return loadConfig(iniOf(options), options.set ?? [])
}

/** The command line of this program. */
const self = (): string[] => [process.execPath, ...process.execArgv, process.argv[1] ?? '']

/** The options that choose the configuration. */
const given = ({ config, set = [] }: Options): string[] => [
  ...(config === undefined ? [] : ['--config', config]),
  ...set.flatMap(value => ['--set', value])
]

/** Splits the command line into options and operands, in any order. Throws UsageError. */
function parsed(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        config: { type: 'string' },
        set: { type: 'string', multiple: true },
        role: { type: 'string' },
        stdin: { type: 'boolean' },
        yes: { type: 'boolean' },
        csv: { type: 'boolean' },
        luna2: { type: 'boolean' },
        warewulf: { type: 'boolean' },
        xcat: { type: 'boolean' },
        images: { type: 'boolean' },
        force: { type: 'boolean' },
        version: { type: 'boolean' },
        help: { type: 'boolean' }
      }
    })
  } catch (error) {
    // Only the first sentence: the rest is about operands that begin with a hyphen.
    throw new UsageError((error as Error).message.split('. ', 1)[0])
  }
}

type Options = ReturnType<typeof parsed>['values']

/** Runs what the command line says; refuses options of other commands. Returns as a command does. */
async function run(argv: readonly string[]): Promise<number | string> {
  if (argv[0] === 'ctl') return (await import('./cli/ctl.js')).ctl(argv.slice(1))
  const { values, positionals } = parsed(argv)
  const [command = values.version ? 'version' : '', ...args] = positionals
  if (values.help) return usage
  const known = commands.get(command)
  if (!known) throw new UsageError(command === '' ? 'which command?' : `unknown command ${command}`)
  const operand = operands[command]
  const count = operand?.split(' ').length ?? 0
  // The words of keys are counted there.
  if (args.length !== count && command !== 'keys')
    throw new UsageError(
      `${command} takes ${operand === undefined ? 'no operand' : count === 1 ? `one ${operand}` : operand}`
    )
  if (command !== 'passwd' && (values.role !== undefined || values.stdin))
    throw new UsageError('--role and --stdin belong to passwd')
  if (command !== 'version' && values.version) throw new UsageError('--version is a command of its own')
  if (command !== 'import' && (values.yes || values.csv))
    throw new UsageError('--yes and --csv belong to import')
  const systems = otherSystems.filter(name => values[name])
  if (systems.length > 0 && (command !== 'import' || values.csv || systems.length > 1))
    throw new UsageError(`--${systems[0]} belongs to import, without --csv or another system`)
  if (command !== 'backup' && values.images) throw new UsageError('--images belongs to backup')
  if (command !== 'restore' && values.force) throw new UsageError('--force belongs to restore')
  return known(values, args)
}

async function main(argv: readonly string[]): Promise<number> {
  try {
    const told = await run(argv)
    if (typeof told === 'number') return told
    process.stdout.write(told)
    return 0
  } catch (error) {
    if (!(error instanceof UsageError)) {
      for (const line of failureLines(error)) process.stderr.write(`${line}\n`)
      return 1
    }
    process.stderr.write(`svcd: ${error.message}\nType \`svcd --help\` for the commands and options.\n`)
    return 2
  }
}

process.exit(await main(process.argv.slice(2)))
