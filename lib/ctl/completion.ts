import type { TypeName } from '../model/docs.js'
import { objectTypes, typeNames } from '../model/types.js'
import { cluster, clusterVerbs } from './cluster.js'
import { commands, optionTexts } from './help.js'
import { formats } from './session.js'
import { choices, ofInterface, settable } from './values.js'
import { verbs, verbsOf } from './verbs.js'

const words = (all: readonly string[]) => `'${all.join(' ')}'`

/** All options as they are typed. */
const options = optionTexts.flatMap(([left]) => left.match(/-{1,2}[a-z]+/g) ?? [])

function assignable(type: TypeName): string[] {
  const table = objectTypes[type]
  const own = settable(table).map(({ name, merged }) => (merged ? `${name}.` : `${name}=`))
  // The names of interfaces are the admin's; these two are known.
  const known = ofInterface(table).flatMap(({ name }) => [`BOOTIF.${name}=`, `BMC.${name}=`])
  return [...own, ...known, `${table.newName[0]}=`]
}

/** The completion for bash, made from the tables of types and verbs. */
export function bashCompletion(): string {
  const all = [
    ...typeNames.map(type => ({
      type,
      table: objectTypes[type],
      known: Object.keys(verbsOf(type)),
      assigned: assignable(type)
    })),
    {
      ...{ type: 'cluster', table: cluster, known: Object.keys(clusterVerbs) },
      assigned: settable(cluster).map(({ name, merged }) => (merged ? `${name}.` : `${name}=`))
    }
  ]
  const ofType = all.map(({ type, table, known, assigned }) => {
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
  })
  const assigning = Object.entries(verbs).filter(([, { assigns }]) => assigns)
  const acting = Object.entries(verbs).filter(([, { actions }]) => actions)
  return `# Completion of svcctl and svcd for bash, made from svcd's tables: svcctl completion bash

# The words of a type: its verbs, its fields, or the values of a field.
_svcctl_words() {
  case $1 in
${ofType.join('\n')}
  esac
}

# The names of objects, asked of the controller with the token of the last login. A name holds nothing that a shell
# would run.
_svcctl_names() {
  timeout 2 "\${_svcctl_command[@]}" "$1" list --fields name -o csv </dev/null 2>/dev/null |
    tail -n +2 | tr -d '\\r' | LC_ALL=C grep -xE '[A-Za-z0-9][A-Za-z0-9._-]*'
}

_svcctl() {
  local line=\${COMP_LINE:0:COMP_POINT} word previous='' current value lead=''
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
  unset 'given[-1]'
  for word in "\${given[@]}"; do
    case $previous in
      --url | --cacert | -o | --output | --fields | --sort) previous=''; continue ;;
    esac
    previous=$word
    [[ $word == -* ]] || plain+=("$word")
  done
  [[ \${plain[0]} == cluster ]] && ((\${#plain[@]} > 1)) && plain=(cluster "\${plain[1]}" '' "\${plain[@]:2}")
  local type=\${plain[0]} verb=\${plain[1]} choices=''
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
        elif [[ $type == import ]]; then COMPREPLY=($(compgen -f -- "$current")); return
        else choices=$(_svcctl_words "$type" verbs); fi
      elif ((\${#plain[@]} == 2)); then [[ $verb == add ]] || choices=$(_svcctl_names "$type")
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
  # What stands before an = is no part of the word that bash completes.
  local shown=$lead
  [[ $lead == *= && $COMP_WORDBREAKS == *=* ]] && shown=''
  COMPREPLY=($(compgen -P "$shown" -W "$choices" -- "\${current#"$lead"}"))
}
complete -F _svcctl svcctl svcd
`
}
