import type { TypeName } from '../model/docs.js'
import { base64, type Field, objectName } from '../model/field.js'
import { objectTypes, typeNames } from '../model/types.js'
import { byName, formats, optionTable, type Verb, type Verbs } from './session.js'
import { choices, ofInterface, type Settable, settable } from './values.js'
import { cluster, plainVerbs, verbs, verbsOf, wordVerbs } from './verbs.js'

const column = (left: string, width: number, right: string) =>
  left.length < width ? `  ${left.padEnd(width)} ${right}` : `  ${left}\n  ${' '.repeat(width)} ${right}`

const login = ['login', 'logout', 'token', 'completion']
/** The words that may come first. */
export const commands = [...login, ...Object.keys(plainVerbs), 'cluster', 'unknown', ...typeNames]

const verbLine = (names: string, operands: string, summary: string) =>
  column(`${names} ${operands}`.trimEnd(), 34, summary)

/** Returns a line for each verb behind a word, which may be none. */
const verbLines = (verbs: Verbs<string>, word = '') =>
  Object.entries(verbs)
    .map(([name, { operands, summary }]) => verbLine(`${word} ${name}`.trimStart(), operands, summary))
    .join('\n')

const bothNames = (name: string, { alias }: Verb) => (alias === undefined ? name : `${name}, ${alias}`)

/** Returns the text of `--help`. */
export const help = () => `Usage: svcctl login [USER]
       svcctl TYPE VERB [NAME|SET] [FIELD=VALUE]... [OPTION]...

svcctl (the same as svcd ctl) asks the controller over its http interface.

  login [USER]                       get a token, which is valid for an hour; default: admin
  logout                             forget it
  token                              print it, for programs that ask over http
${verbLines(wordVerbs.token, 'token')}
  completion bash                    print the completion for bash
${verbLines(plainVerbs)}
${verbLines(wordVerbs.cluster, 'cluster')}
${verbLines(wordVerbs.unknown, 'unknown')}

Types: ${typeNames.join(', ')}

Verbs:
${Object.entries(verbs)
  .map(([name, verb]) => {
    const { operands, summary, onlyTypes } = verb
    const types = onlyTypes ? ` [${onlyTypes.join(', ')}]` : ''
    return verbLine(bothNames(name, verb), operands, `${summary}${types}`)
  })
  .join('\n')}

A verb with types behind it is for these alone. NAME may be a node set for nodes: node[001-100], node*,
@group, @all, @failed, @osimage:NAME, @status:WORD, @stale:yes, @trust:bad. a,b is the nodes of both,
a!b those of a without those of b, a&b those that are in both.

Values: yes and no for what is true or false, commas in lists, nothing (FIELD=) to unset. @FILE reads a text
from a file, - from standard input, @@ is an @. Scripts are given as text. Of a secret, - asks on a terminal.
FIELD=VALUE may be written --FIELD=VALUE.

Options:
${Object.entries(optionTable)
  .map(([name, option]) => {
    const short = 'short' in option ? `-${option.short}, ` : '    '
    return column(`${short}--${name} ${option.takes}`.trimEnd(), 24, option.about)
  })
  .join('\n')}

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
  const ofVerbs = Object.entries(verbsOf(type)).map(([name, verb]) => {
    const { operands, summary } = verb
    const names = bothNames(name, verb)
    // Only nodes come in sets.
    return type === 'node'
      ? verbLine(names, operands, summary)
      : verbLine(names, operands.replace('[SET]', ''), summary.replace(/; of nodes.*/, ''))
  })
  return `Usage: svcctl ${type} VERB ...

Verbs of ${title === type ? type : `${type} (${title})`}:
${ofVerbs.join('\n')}

Fields:
${[...rows, ...ofEntries, column(`${newName[0]}=`, 24, 'renames it')].join('\n')}

svcctl --help tells the options and what values look like.
`
}

const words = (all: readonly string[]) => `'${all.join(' ')}'`

/** Returns what may precede a value: the beginnings of FIELD=VALUE words. */
const assignable = (table: Settable) => [
  ...settable(table).map(({ name, isMergedByKey }) => (isMergedByKey ? `${name}.` : `${name}=`)),
  // Admins name interfaces; only these two names are fixed.
  ...ofInterface(table).flatMap(({ name }) => [`BOOTIF.${name}=`, `BMC.${name}=`]),
  ...table.newName.slice(0, 1).map(name => `${name}=`)
]

const nothing: Settable = { title: '', fields: [], newName: [] }

/** Returns the words of all that has verbs: its verbs, its fields, and the values of a field. */
const wordsOfTypes = () =>
  [
    ...typeNames.map(type => wordsOf(type, verbsOf(type), objectTypes[type])),
    wordsOf('cluster', wordVerbs.cluster, cluster),
    wordsOf('unknown', wordVerbs.unknown, nothing),
    wordsOf('token', wordVerbs.token, nothing)
  ].join('\n')

function wordsOf<T extends string>(type: string, verbs: Verbs<T>, table: Settable): string {
  const values = settable(table).flatMap(field =>
    field.refers
      ? [`        ${field.name}) _svcctl_names ${field.refers} ;;`]
      : choices(field).length > 0
        ? [`        ${field.name}) echo ${words(choices(field))} ;;`]
        : []
  )
  return `    ${type})
      case $2 in
        verbs) echo ${words([...byName(verbs).keys()])} ;;
        fields) echo ${words(assignable(table))} ;;
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

type Named = readonly [name: string, { readonly type: string; readonly short?: string }]
const optionNames = (options: readonly Named[]) =>
  options.flatMap(([name, { short }]) => (short === undefined ? `--${name}` : [`-${short}`, `--${name}`]))

const allOptions = Object.entries(optionTable)
const valued = optionNames(allOptions.filter(([, { type }]) => type === 'string'))

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
    case $previous in ${valued.join(' | ')}) previous=''; continue ;; esac
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
${wordsOfTypes()}
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
      if [[ $current == -* ]]; then choices=${words(optionNames(allOptions))}
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
