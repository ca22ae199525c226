/** Commands for BMCs, by part of the machine. */
export const commands = {
  power: ['status', 'on', 'off', 'soft', 'cycle', 'reset', 'boot'],
  chassis: ['identify', 'noidentify', 'netboot', 'diskboot'],
  sel: ['list', 'clear']
} as const

export type Part = keyof typeof commands
/** Part and action: `power on`. */
export type Command = { [P in Part]: `${P} ${(typeof commands)[P][number]}` }[Part]

/** All commands, each with its part and its action. */
export const allCommands = Object.entries(commands).flatMap(([part, actions]) =>
  actions.map(action => ({ part: part as Part, action, command: `${part} ${action}` as Command }))
)

/** Whether the command leaves the machine as it is. */
export const isReading = (command: Command) => command === 'power status' || command === 'sel list'

/** Whether the command makes machines draw their peak current. */
export const switchesOn = (command: Command) =>
  ['power on', 'power cycle', 'power reset', 'power boot'].includes(command)

/** Error for resetting or cycling a machine that is off. */
export const IS_OFF = 'is off: switch it on with "on" or "boot"'
