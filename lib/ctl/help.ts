import type { TypeName } from '../model/docs.js'
import { base64, type Field, objectName } from '../model/field.js'
import { objectTypes, typeNames } from '../model/types.js'
import { clusterVerbs } from './cluster.js'
import { choices, ofInterface, settable } from './values.js'
import { verbs, verbsOf } from './verbs.js'

/** How one option is written, and what it does. */
export const optionTexts = [
  ['    --url URL', 'where the controller is; default: SVCD_URL, else http://127.0.0.1:7050'],
  ['    --cacert FILE', 'the CA that signed the certificate of an https URL; default: SVCD_CACERT'],
  ['-o, --output FORMAT', 'text (default), json or csv'],
  ['    --fields A,B', 'list, show, status: these fields alone; BOOTIF.ipaddress is one of an interface'],
  ['    --sort A,-B', 'list, status: by these fields; - sorts downwards'],
  ['    --dryrun', 'tell what a change would change, and change nothing'],
  ['-y, --yes', 'rm, power, sel, import: do not ask'],
  ['    --stdin', 'login: read the password from standard input'],
  ['    --version', 'print version, interface version and source commit of svcctl'],
  ['-h, --help', 'print this; behind a type its verbs and fields']
] as const

const column = (left: string, width: number, right: string) =>
  left.length < width ? `  ${left.padEnd(width)} ${right}` : `  ${left}\n  ${' '.repeat(width)} ${right}`

/** The first words of a command line. */
export const commands = ['login', 'logout', 'token', 'completion', 'import', 'cluster', ...typeNames] as const

const verbLines = (type: TypeName) =>
  Object.entries(verbsOf(type)).map(([name, { operands, summary }]) =>
    column(
      `${name} ${type === 'node' ? operands : operands.replace('[SET]', '')}`.trimEnd(),
      34,
      type === 'node' ? summary : summary.replace(/; of nodes.*/, '')
    )
  )

/** What `--help` prints. */
export const help = () => `Usage: svcctl login [USER]
       svcctl TYPE VERB [NAME|SET] [FIELD=VALUE]... [OPTION]...

svcctl (the same as svcd ctl) asks the controller over its http interface.

  login [USER]                       get a token, which is valid for an hour; default: admin
  logout                             forget it
  token                              print it, for programs that ask over http
  completion bash                    print the completion for bash
  import FILE                        create and change nodes by the lines of a table in CSV; - is standard input
${Object.entries(clusterVerbs)
  .map(([name, { operands, summary }]) => column(`cluster ${name} ${operands}`.trimEnd(), 34, summary))
  .join('\n')}

Types: ${typeNames.join(', ')}

Verbs:
${Object.entries(verbs)
  .map(([name, { operands, summary, only }]) =>
    column(`${name} ${operands}`, 34, only ? `${summary} [${only.join(', ')}]` : summary)
  )
  .join('\n')}

A verb with types behind it is for these alone. NAME may be a node set for nodes: node[001-100], @group, @all,
@osimage:NAME, @status:WORD, @stale:yes. a,b is the nodes of both, a!b those of a without those of b, a&b those
that are in both.

Values: yes and no for what is true or false, commas in lists, nothing (FIELD=) to unset. @FILE reads a text
from a file, - from standard input, @@ is an @. Scripts are given as text. Of a secret, - asks on a terminal.

Options:
${optionTexts.map(([left, right]) => column(left, 24, right)).join('\n')}

Exit codes: 0 done, 1 the controller refuses or what was asked has failed, 2 the command line is wrong,
3 there is no controller. docs/ctl.md tells more.
`

/** What a field takes, where its meaning does not say so. */
function noteOf(field: Field): string {
  const { type, refers } = field
  if (refers) return ` [${refers}]`
  const words = choices(field)
  if (words.length > 0) return `: ${words.join(' or ')}`
  if (type === base64) return ': a text, or @FILE'
  const isPlain =
    type === objectName || type.json === 'object' || type.json === 'array' || type.expected === 'a string'
  return isPlain ? '' : `: ${type.expected}`
}

/** What `--help` prints behind a type. */
export function typeHelp(type: TypeName): string {
  const { title, newName } = objectTypes[type]
  const rows = settable(objectTypes[type]).map(field =>
    field.merged
      ? column(`${field.name}.NAME=`, 24, 'text for templates; an empty one takes it away')
      : column(`${field.name}=`, 24, `${field.meaning}${noteOf(field)}`)
  )
  const ofEntries = ofInterface(objectTypes[type]).map(({ name, meaning }) =>
    column(`INTERFACE.${name}=`, 24, meaning)
  )
  return `Usage: svcctl ${type} VERB ...

Verbs of ${title === type ? type : `${type} (${title})`}:
${verbLines(type).join('\n')}

Fields:
${[...rows, ...ofEntries, column(`${newName[0]}=`, 24, 'renames it')].join('\n')}

svcctl --help tells the options and what values look like.
`
}
