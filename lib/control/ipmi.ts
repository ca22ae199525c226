import { searchPath } from '../program/locate.js'
import type { Bmc, Visit } from './bmc.js'
import type { Command } from './commands.js'
import type { Outcome, Programs } from './programs.js'
import { cleanLine, cleanText } from './words.js'

/** A full log of a BMC has some thousand lines. */
const MOST_OUTPUT = 1024 * 1024

const words: Readonly<Record<Command, readonly string[]>> = {
  'power status': ['power', 'status'],
  'power on': ['power', 'on'],
  'power off': ['power', 'off'],
  'power cycle': ['power', 'cycle'],
  'power reset': ['power', 'reset'],
  // Until it is turned off; the default is 15 seconds.
  'chassis identify': ['chassis', 'identify', 'force'],
  'chassis noidentify': ['chassis', 'identify', '0'],
  'sel list': ['sel', 'list'],
  'sel clear': ['sel', 'clear']
}

/**
 * Asks a BMC by IPMI over lanplus, with ipmitool. Gives the state of the power (`on`, `off`), the log, or ''. The password
 * is in the program's environment, not among its arguments. Throws an Error with the reason.
 */
export async function ipmi(programs: Programs, bmc: Bmc, command: Command, visit: Visit): Promise<string> {
  const stdout = await ipmitool(programs, bmc, words[command], visit)
  if (command === 'sel list') return cleanText(stdout)
  if (command !== 'power status') return ''
  const [, state] = /^Chassis Power is (on|off)$/m.exec(stdout) ?? []
  if (state === undefined) throw new Error(`ipmitool tells no state of the power: ${cleanLine(stdout)}`)
  return state
}

async function ipmitool(
  programs: Programs,
  bmc: Bmc,
  command: readonly string[],
  { port, timeLimitMs, signal }: Visit
): Promise<string> {
  const { address, cipher, username, password } = bmc
  const args = [
    '-I',
    'lanplus',
    '-H',
    address,
    '-p',
    String(port),
    '-C',
    String(cipher),
    '-U',
    username,
    '-E'
  ]
  // It tells why a session failed only with -v, which makes of the lines of a log something else.
  if (command[0] !== 'sel') args.push('-v')
  const env = { PATH: searchPath(), HOME: '/', LC_ALL: 'C', IPMI_PASSWORD: password }
  const options = { env, timeLimitMs, maxOutput: MOST_OUTPUT }
  const outcome = await programs.run('ipmitool', [...args, ...command], options, signal)
  if ('why' in outcome) throw new Error(reasonOf(outcome, bmc, timeLimitMs))
  return outcome.stdout
}

type Failure = Extract<Outcome, { readonly why: unknown }>

function reasonOf({ why, stderr, message }: Failure, bmc: Bmc, timeLimitMs: number): string {
  if (why === 'missing') return 'ipmitool is not installed: install the package ipmitool on the controller'
  if (why === 'time limit') return `no answer within ${timeLimitMs / 1000} s`
  if (why === 'aborted') return 'was stopped'
  const known = reasons.find(([words]) => words.test(stderr))
  return known ? known[1](bmc) : cleanLine(message)
}

/** What ipmitool prints, and what that means for an admin. */
const reasons: readonly (readonly [RegExp, (bmc: Bmc) => string])[] = [
  [/RAKP [24] HMAC is invalid/, ({ setup }) => `wrong password in BMC set-up ${setup}`],
  [/unauthorized name/, ({ setup, username }) => `no user ${cleanLine(username)} (BMC set-up ${setup})`],
  [
    /invalid (?:authentication|integrity|confidentiality) algorithm|no (?:matching )?cipher suite/i,
    ({ setup, cipher }) =>
      `refuses cipher ${cipher}: set "cipher" of BMC set-up ${setup} to ${cipher === 3 ? 17 : 3}`
  ],
  [
    /Could not open socket/,
    () =>
      `this controller has no route to its network: give the controller one, or correct the address of the node's interface BMC`
  ],
  [/Get (?:Channel )?Auth(?:entication)? Capabilities/, () => 'no answer'],
  [
    /Unable to establish IPMI v2/,
    ({ setup }) => `no session: no answer, or wrong user, password or cipher in BMC set-up ${setup}`
  ]
]
