/** An option with a value; `takes` names the value in the help. */
const value = (takes: string, about: string) => ({ type: 'string', takes, about }) as const

/** An option without one. */
const flag = (about: string) => ({ type: 'boolean', takes: '', about }) as const

/** All options in the order of the help, as parseArgs takes them. Help and completion use this table. */
export const optionTable = {
  url: value('URL', 'where the controller is; default: SVCD_URL, else http://127.0.0.1:7050'),
  cacert: value('FILE', 'the CA that signed the certificate of an https URL; default: SVCD_CACERT'),
  output: { ...value('FORMAT', 'text (default), json, csv or yaml'), short: 'o' },
  fields: value('A,B', 'list, show, status: these fields alone; BOOTIF.ipaddress is one of an interface'),
  sort: value('A,-B', 'list, status: by these fields; - sorts downwards'),
  dryrun: flag('tell what would change, or be done, and do nothing'),
  yes: { ...flag('rm, edit, push, power, sel, import, adopt, trust: do not ask'), short: 'y' },
  image: value('IMAGE', 'rescue, rehearse: the OS image; default: that of the nodes; rollout: the OS image'),
  tag: value(
    'TAG',
    'rollout, rehearse: the tag; osimage push: the pack of this tag; default: what is packed now'
  ),
  batch: value('N|N%', 'rollout: nodes that are restarted at a time; default: 10%'),
  rehearse: flag('rollout: boot the first node in a virtual machine before'),
  'until-failed': value('N', 'rollout: stop when so many have failed; default: 1'),
  wait: value('MINUTES', 'rollout: a node that does not run by then has failed; default: 30'),
  restart: value('HOW', 'rollout: boot (default), cycle or reset by the BMC, or none: something else does'),
  end: flag('rescue: do not boot for it any more'),
  forget: flag('trust: forget the TPM of nodes, and what they proved'),
  firmware: flag('trust --forget: also what was accepted of their firmware'),
  group: value('GROUP', 'unknown adopt: the group of the new nodes'),
  order: value('ORDER', 'unknown adopt: time (default), serial, port or mac'),
  bmcsetup: value('NAME', 'unknown scan: the BMC set-up with the user of the BMCs'),
  role: value('ROLE', 'token create: viewer, operator or admin, also for groups alone (viewer:compute,gpu)'),
  days: value('N', 'token create: the token ends after so many days; default: it has no end'),
  log: flag('console: the last lines of its log'),
  lines: { ...value('N', 'console --log: how many lines; default: 100'), short: 'n' },
  shipped: flag('add: the disk layout of this name that comes with svcd'),
  stdin: flag('login: read the password from standard input'),
  oidc: flag('login: by the OpenID provider, in a browser on any machine'),
  version: flag('print version, interface version and source commit of svcctl'),
  help: { ...flag('print this; behind a type its verbs and fields'), short: 'h' }
} as const

type OptionTable = typeof optionTable

export type Options = {
  readonly [K in keyof OptionTable]?: OptionTable[K]['type'] extends 'string' ? string : boolean
}
