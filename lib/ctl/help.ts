import type { TypeName } from '../model/docs.js'
import { base64, type Field, objectName } from '../model/field.js'
import { objectTypes, typeNames } from '../model/types.js'
import { byName, formats } from './session.js'
import { tokenVerbs } from './tokens.js'
import { unknownVerbs } from './unknown.js'
import { choices, ofInterface, type Settable, settable } from './values.js'
import { cluster, clusterVerbs, plainVerbs, verbs, verbsOf } from './verbs.js'

export const optionTexts = [
  ['    --url URL', 'where the controller is; default: SVCD_URL, else http://127.0.0.1:7050'],
  ['    --cacert FILE', 'the CA that signed the certificate of an https URL; default: SVCD_CACERT'],
  ['-o, --output FORMAT', 'text (default), json, csv or yaml'],
  ['    --fields A,B', 'list, show, status: these fields alone; BOOTIF.ipaddress is one of an interface'],
  ['    --sort A,-B', 'list, status: by these fields; - sorts downwards'],
  ['    --dryrun', 'tell what would change, or be done, and do nothing'],
  ['-y, --yes', 'rm, edit, push, power, sel, import, adopt, trust: do not ask'],
  ['    --image IMAGE', 'rescue, rehearse: the OS image; default: that of the nodes; rollout: the OS image'],
  [
    '    --tag TAG',
    'rollout, rehearse: the tag; osimage push: the pack of this tag; default: what is packed now'
  ],
  ['    --batch N|N%', 'rollout: nodes that are restarted at a time; default: 10%'],
  ['    --rehearse', 'rollout: boot the first node in a virtual machine before'],
  ['    --until-failed N', 'rollout: stop when so many have failed; default: 1'],
  ['    --wait MINUTES', 'rollout: a node that does not run by then has failed; default: 30'],
  ['    --restart HOW', 'rollout: boot (default), cycle or reset by the BMC, or none: something else does'],
  ['    --end', 'rescue: do not boot for it any more'],
  ['    --forget', 'trust: forget the TPM of nodes, and what they proved'],
  ['    --firmware', 'trust --forget: also what was accepted of their firmware'],
  ['    --group GROUP', 'unknown adopt: the group of the new nodes'],
  ['    --order ORDER', 'unknown adopt: time (default), serial, port or mac'],
  ['    --bmcsetup NAME', 'unknown scan: the BMC set-up with the user of the BMCs'],
  ['    --role ROLE', 'token create: viewer, operator or admin, also for groups alone (viewer:compute,gpu)'],
  ['    --days N', 'token create: the token ends after so many days; default: it has no end'],
  ['    --log', 'console: the last lines of its log'],
  ['-n, --lines N', 'console --log: how many lines; default: 100'],
  ['    --shipped', 'add: the disk layout of this name that comes with svcd'],
  ['    --stdin', 'login: read the password from standard input'],
  ['    --oidc', 'login: by the OpenID provider, in a browser on any machine'],
  ['    --version', 'print version, interface version and source commit of svcctl'],
  ['-h, --help', 'print this; behind a type its verbs and fields']
] as const

const column = (left: string, width: number, right: string) =>
  left.length < width ? `  ${left.padEnd(width)} ${right}` : `  ${left}\n  ${' '.repeat(width)} ${right}`

const login = ['login', 'logout', 'token', 'completion', 'import']
/** The words that may come first. */
export const commands = [...login, ...Object.keys(plainVerbs), 'cluster', 'unknown', ...typeNames]

const names = (name: string, also = '') => (also === '' ? name : `${name}, ${also}`)

const verbLines = (type: TypeName) =>
  Object.entries(verbsOf(type)).map(([name, { operands, summary, alias }]) =>
    column(
      `${names(name, alias)} ${type === 'node' ? operands : operands.replace('[SET]', '')}`.trimEnd(),
      34,
      type === 'node' ? summary : summary.replace(/; of nodes.*/, '')
    )
  )

/** Returns the text of `--help`. */
export const help = () => `Usage: svcctl login [USER]
       svcctl TYPE VERB [NAME|SET] [FIELD=VALUE]... [OPTION]...

svcctl (the same as svcd ctl) asks the controller over its http interface.

  login [USER]                       get a token, which is valid for an hour; default: admin
  logout                             forget it
  token                              print it, for programs that ask over http
${Object.entries(tokenVerbs)
  .map(([name, { operands, summary }]) => column(`token ${name} ${operands}`.trimEnd(), 34, summary))
  .join('\n')}
  completion bash                    print the completion for bash
  import FILE                        create and change nodes by a table in CSV; - is standard input
${Object.entries(plainVerbs)
  .map(([name, { operands, summary }]) => column(`${name} ${operands}`, 34, summary))
  .join('\n')}
${Object.entries(clusterVerbs)
  .map(([name, { operands, summary }]) => column(`cluster ${name} ${operands}`.trimEnd(), 34, summary))
  .join('\n')}
${Object.entries(unknownVerbs)
  .map(([name, { operands, summary }]) => column(`unknown ${name} ${operands}`.trimEnd(), 34, summary))
  .join('\n')}

Types: ${typeNames.join(', ')}

Verbs:
${Object.entries(verbs)
  .map(([name, { operands, summary, onlyTypes, alias }]) =>
    column(
      `${names(name, alias)} ${operands}`,
      34,
      onlyTypes ? `${summary} [${onlyTypes.join(', ')}]` : summary
    )
  )
  .join('\n')}

A verb with types behind it is for these alone. NAME may be a node set for nodes: node[001-100], node*,
@group, @all, @failed, @osimage:NAME, @status:WORD, @stale:yes, @trust:bad. a,b is the nodes of both,
a!b those of a without those of b, a&b those that are in both.

Values: yes and no for what is true or false, commas in lists, nothing (FIELD=) to unset. @FILE reads a text
from a file, - from standard input, @@ is an @. Scripts are given as text. Of a secret, - asks on a terminal.
FIELD=VALUE may be written --FIELD=VALUE.

Options:
${optionTexts.map(([left, right]) => column(left, 24, right)).join('\n')}

Exit codes: 0 done, 1 the controller refuses or what was asked has failed, 2 the command line is wrong,
3 there is no controller. docs/ctl.md tells more.
`

/** Describes the values of a field where its meaning does not. */
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

/** Returns the text of `TYPE --help`. */
export function typeHelp(type: TypeName): string {
  const { title, newName } = objectTypes[type]
  const rows = settable(objectTypes[type]).map(field =>
    field.isMergedByKey
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

const words = (all: readonly string[]) => `'${all.join(' ')}'`

/** Option names for completion. */
const options = optionTexts.flatMap(([left]) => left.match(/-{1,2}[a-z]+(?:-[a-z]+)*/g) ?? [])

function assignable(type: TypeName): string[] {
  const table = objectTypes[type]
  const own = settable(table).map(({ name, isMergedByKey }) => (isMergedByKey ? `${name}.` : `${name}=`))
  // Admins name interfaces; only these two names are fixed.
  const known = ofInterface(table).flatMap(({ name }) => [`BOOTIF.${name}=`, `BMC.${name}=`])
  return [...own, ...known, `${table.newName[0]}=`]
}

/** A type as the completion knows it: its verbs, and the fields that can be assigned. */
interface Completed {
  readonly type: string
  readonly table: Pick<Settable, 'fields'>
  readonly known: readonly string[]
  readonly assigned: readonly string[]
}

/** Returns the types of objects, and the settings of the cluster. */
const completedTypes = (): Completed[] => [
  ...typeNames.map(type => ({
    type,
    table: objectTypes[type],
    known: [...byName(verbsOf(type)).keys()],
    assigned: assignable(type)
  })),
  {
    ...{ type: 'cluster', table: cluster, known: [...byName(clusterVerbs).keys()] },
    assigned: settable(cluster).map(({ name, isMergedByKey }) => (isMergedByKey ? `${name}.` : `${name}=`))
  },
  { type: 'unknown', table: { fields: [] }, known: [...byName(unknownVerbs).keys()], assigned: [] },
  { type: 'token', table: { fields: [] }, known: [...byName(tokenVerbs).keys()], assigned: [] }
]

/** Returns the words of a type: its verbs, its fields, and the values of a field. */
function wordsOf({ type, table, known, assigned }: Completed): string {
  const values = settable(table).flatMap(field =>
    field.refers
      ? [`        ${field.name}) _svcctl_names ${field.refers} ;;`]
      : choices(field).length > 0
        ? [`        ${field.name}) echo ${words(choices(field))} ;;`]
        : []
  )
  return `    ${type})
      case $2 in
        verbs) echo ${words(known)} ;;
        fields) echo ${words(assigned)} ;;
        names) echo ${words(settable(table).map(({ name }) => name))} ;;
${values.join('\n')}
      esac ;;`
}

const namesOfObjects = `
# The names of objects, asked of the controller with the token of the last login. A name holds nothing
# that a shell would run.
_svcctl_names() {
  timeout 2 "\${_svcctl_command[@]}" "$1" list --fields name -o csv </dev/null 2>/dev/null |
    tail -n +2 | tr -d '\\r' | LC_ALL=C grep -xE '[A-Za-z0-9][A-Za-z0-9._-]*'
}

# Completes what may stand for nodes: names, and behind an @ the groups and words of node sets.
_svcctl_nodes() {
  local before=\${current%"\${current##*[,!&^]}"}
  case \${current#"$before"} in
    @osimage:*) lead=$before@osimage: choices=$(_svcctl_names osimage) ;;
    @status:*) lead=$before@status: choices='installer.failed installer.completed running' ;;
    @trust:*) lead=$before@trust: choices='good bad unknown pending' ;;
    @*) lead=$before@ choices="all failed osimage: stale:yes status: trust: $(_svcctl_names group)" ;;
    *) lead=$before choices=$(_svcctl_names node) ;;
  esac
}`

/** Finds the words before the one to complete. */
const openingOfCompletion = `_svcctl() {
  local line=\${COMP_LINE:0:COMP_POINT} word previous='' current value lead='' quote=''
  local -a given=() plain=() _svcctl_command=("\${COMP_WORDS[0]}")
  COMPREPLY=()
  read -ra given <<<"$line"
  [[ $line == *[[:space:]] ]] && given+=('')
  given=("\${given[@]:1}")
  if [[ \${COMP_WORDS[0]##*/} == svcd ]]; then
    if ((\${#given[@]} < 2)); then
      COMPREPLY=($(compgen -W 'serve helper check export import backup restore store join passwd version ctl --help --version' -- "\${given[0]}"))
      return
    fi
    [[ \${given[0]} == ctl ]] || { COMPREPLY=($(compgen -f -- "\${given[-1]}")); return; }
    _svcctl_command+=(ctl)
    given=("\${given[@]:1}")
  fi
  current=\${given[-1]}
  # Within quotes bash completes the whole word, and not what stands behind an = or an @.
  [[ $current == [\\"\\']* ]] && quote=\${current:0:1} current=\${current:1}
  unset 'given[-1]'
  for word in "\${given[@]}"; do
    case $previous in
      --tag | --batch | --until-failed | --wait | --restart) previous=''; continue ;;
      --url | --cacert | -o | --output | --fields | --sort | --group | --order | --bmcsetup | --role | --days)
        previous=''; continue ;;
    esac
    previous=$word
    [[ $word == -* ]] || plain+=("$word")
  done
  [[ \${plain[0]} == cluster ]] && ((\${#plain[@]} > 1)) && plain=(cluster "\${plain[1]}" '' "\${plain[@]:2}")
`

/** Generates the bash completion from the tables of types and verbs. */
export function bashCompletion(): string {
  const named = [...byName(verbs)]
  const assigning = named.filter(([, { assigns }]) => assigns)
  const acting = named.filter(([, { actions }]) => actions)
  const plainActions = Object.entries(plainVerbs).filter(([, { actions }]) => actions)
  return `# Completion of svcctl and svcd for bash, made from svcd's tables: svcctl completion bash

# The words of a type: its verbs, its fields, or the values of a field.
_svcctl_words() {
  case $1 in
${completedTypes().map(wordsOf).join('\n')}
  esac
}
${namesOfObjects}

${openingOfCompletion}  local type=\${plain[0]} verb=\${plain[1]} choices=''
  case $previous in
    -o | --output) choices='${formats.join(' ')}' ;;
    --cacert) COMPREPLY=($(compgen -f -- "$current")); return ;;
    --url) return ;;
    --fields | --sort)
      [[ $current == *,* ]] && lead=\${current%,*},
      choices="name $(_svcctl_words "$type" names)" ;;
    *)
      if [[ $current == -* ]]; then choices=${words(options)}
      elif ((\${#plain[@]} == 0)); then choices=${words(commands)}
      elif ((\${#plain[@]} == 1)); then
        if [[ $type == completion ]]; then choices=bash
        elif [[ $type == nodes || $type == rollout ]]; then _svcctl_nodes
${plainActions
  .map(([name, { actions = [] }]) => `        elif [[ $type == ${name} ]]; then choices=${words(actions)}`)
  .join('\n')}
        elif [[ $type == import ]]; then COMPREPLY=($(compgen -f -- "$current")); return
        else choices=$(_svcctl_words "$type" verbs); fi
      elif ((\${#plain[@]} == 2)); then
        if [[ $verb == add || $verb == create ]]; then :
        elif [[ $type == node ]]; then _svcctl_nodes
        else choices=$(_svcctl_names "$type"); fi
      else
        case $verb in
${acting.map(([name, { actions = [] }]) => `          ${name}) choices=${words(actions)} ;;`).join('\n')}
          ${assigning.map(([name]) => name).join(' | ')})
            if [[ $current == *=* ]]; then
              lead=\${current%%=*}=
              value=\${current#*=}
              if [[ $value == @* ]]; then
                COMPREPLY=($(compgen -P @ -f -- "\${value#@}"))
                return
              fi
              choices=$(_svcctl_words "$type" "\${current%%=*}")
            else
              choices=$(_svcctl_words "$type" fields)
              compopt -o nospace 2>/dev/null
            fi ;;
        esac
      fi ;;
  esac
  # Bash completes the part of the word behind an =, an @ or a :.
  local shown=$lead
  [[ -z $quote && $COMP_WORDBREAKS == *"\${lead: -1}"* ]] && shown=''
  COMPREPLY=($(compgen -P "$shown" -W "$choices" -- "\${current#"$lead"}"))
  [[ \${COMPREPLY[0]} != *: ]] || compopt -o nospace 2>/dev/null
}
complete -F _svcctl svcctl svcd
`
}
