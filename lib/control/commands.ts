/** What the BMC of a node can be asked, by the part of the machine that it is about. */
export const commands = {
  power: ['status', 'on', 'off', 'soft', 'cycle', 'reset', 'boot'],
  chassis: ['identify', 'noidentify', 'netboot', 'diskboot'],
  sel: ['list', 'clear']
} as const

export type Part = keyof typeof commands
/** A part and what is done with it: `power on`. */
export type Command = { [P in Part]: `${P} ${(typeof commands)[P][number]}` }[Part]

/** All of them, each with its part and its action. */
export const allCommands = Object.entries(commands).flatMap(([part, actions]) =>
  actions.map(action => ({ part: part as Part, action, command: `${part} ${action}` as Command }))
)

/** Whether it leaves the machine as it is. */
export const isReading = (command: Command) => command === 'power status' || command === 'sel list'

/** Whether machines draw their peak current after it. */
export const switchesOn = (command: Command) =>
  ['power on', 'power cycle', 'power reset', 'power boot'].includes(command)

/** The reason where a machine that is off is to be reset or cycled. */
export const IS_OFF = 'is off: switch it on with "on" or "boot"'
