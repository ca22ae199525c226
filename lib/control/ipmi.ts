import { type Command, IS_OFF } from '../model/bmc-commands.js'
import { searchPath } from '../program/program.js'
import type { Outcome, Programs } from '../program/programs.js'
import { type Bmc, type CallLimits, cleanLine, cleanText } from './bmc.js'

/** A full log of a BMC has a few thousand lines. */
const MOST_OUTPUT = 1024 * 1024

/** Commands that are a single call of ipmitool. */
type Call = Exclude<Command, 'power boot' | 'chassis netboot' | 'chassis diskboot'>

/** Arguments of ipmitool for a call, where they are not its words. */
const words: Partial<Record<Call, readonly string[]>> = {
  // On until it is turned off; the default is 15 seconds.
  'chassis identify': ['chassis', 'identify', 'force'],
  'chassis noidentify': ['chassis', 'identify', '0']
}

/**
 * Sends a command by IPMI over lanplus, with ipmitool. Returns the power state (`on`, `off`), the log, or ''.
 * The password is passed in the environment, not as an argument. Throws an Error with the reason.
 */
export async function ipmi(programs: Programs, bmc: Bmc, asked: Command, visit: CallLimits): Promise<string> {
  const tell = (...told: readonly string[]) => ipmitool(programs, bmc, told, visit)
  const send = (call: Call) => tell(...(words[call] ?? call.split(' ')))
  if (asked === 'sel list') return cleanText(await send(asked))
  if (asked === 'chassis netboot' || asked === 'chassis diskboot') {
    // Without this option a UEFI machine would look for a boot sector.
    const isEfi = /BIOS EFI boot/.test(await tell('chassis', 'bootparam', 'get', '5'))
    const device = asked === 'chassis netboot' ? 'pxe' : 'disk'
    await tell('chassis', 'bootdev', device, ...(isEfi ? ['options=efiboot'] : []))
    return ''
  }
  let command = asked
  if (asked.startsWith('power ') && asked !== 'power on' && asked !== 'power off') {
    const stdout = await send('power status')
    const [, state] = /^Chassis Power is (on|off)$/m.exec(stdout) ?? []
    if (state === undefined) throw new Error(`ipmitool tells no state of the power: ${cleanLine(stdout)}`)
    if (asked === 'power status') return state
    if (asked === 'power soft' && state === 'off') return ''
    if (asked !== 'power boot' && state === 'off') throw new Error(IS_OFF)
    if (asked === 'power boot' && state === 'off') command = 'power on'
  }
  await send(command === 'power boot' ? 'power cycle' : command)
  return ''
}

async function ipmitool(
  programs: Programs,
  bmc: Bmc,
  command: readonly string[],
  { port, timeLimitMs, signal }: CallLimits
): Promise<string> {
  const { address, cipher, username, password, privilege } = bmc
  const args = [
    ...['-I', 'lanplus', '-H', address, '-p', String(port), '-C', String(cipher)],
    // ipmitool asks for administrator by default.
    ...(privilege === 'administrator' ? [] : ['-L', privilege.toUpperCase()]),
    ...['-U', username, '-E']
  ]
  // Only -v prints why a session failed, but it also changes the lines of a log.
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

/** Output of ipmitool, and its meaning for an admin. */
const reasons: readonly (readonly [RegExp, (bmc: Bmc) => string])[] = [
  [
    /insufficient resources for/,
    () => 'has no room for another session: end one in the BMC, or try again in a minute'
  ],
  [
    /unauthorized role requested|invalid role|privilege level exceeds limit|Set Session Privilege Level to \w+ failed/i,
    ({ setup, username, privilege }) =>
      `user ${cleanLine(username)} is no ${privilege} there: set "privilege" of BMC set-up ${setup} to ` +
      `${privilege === 'administrator' ? 'operator' : 'what the user is'}`
  ],
  [
    /Insufficient privilege level/i,
    ({ setup, privilege }) =>
      `the privilege ${privilege} is too low for this: ` +
      `set "privilege" of BMC set-up ${setup} to administrator`
  ],
  [/Node busy|BMC busy/i, () => 'is busy: try again in a minute'],
  [/not supported in present state/i, () => 'cannot do it in the state that the machine is in'],
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
      'this controller has no route to its network: give the controller one, ' +
      "or correct the address of the node's interface BMC"
  ],
  [/Get (?:Channel )?Auth(?:entication)? Capabilities/, () => 'no answer'],
  [
    /Unable to establish IPMI v2/,
    ({ setup }) => `no session: no answer, or wrong user, password or cipher in BMC set-up ${setup}`
  ]
]
