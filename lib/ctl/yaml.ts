import type { JsonValue } from '../json.js'

/** Words that are texts without quotes: none that YAML 1.1 or 1.2 takes for a number, a date, a boolean or a comment. */
const plainWord = /^(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_/][\w./-]*(?: [\w./-]+)*$/i
/** Characters that a text in lines cannot have; a line of nothing but blanks would end it elsewhere. */
const inLines = /^(?!\s*$)[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*(?:\n[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*)+$/u

/** A value as YAML, block by block, so that every parser reads the same from it as from its JSON. */
export function* yamlLines(value: JsonValue, indent = ''): Generator<string> {
  if (Array.isArray(value) && value.length > 0)
    for (const one of value) {
      let lead = `${indent}- `
      // The rest of an entry stands below its first line.
      for (const line of yamlLines(one, `${indent}  `)) {
        yield line === '' ? line : lead + line.slice(lead.length)
        lead = `${indent}  `
      }
    }
  else if (typeof value === 'object' && value !== null && Object.keys(value).length > 0)
    for (const [name, one] of Object.entries(value)) {
      const [first = '', ...rest] = yamlLines(one, `${indent}  `)
      const isBlock = typeof one === 'object' && one !== null && Object.keys(one).length > 0
      const lead = `${indent}${plainWord.test(name) ? name : quoted(name)}:`
      yield isBlock ? lead : `${lead} ${first.trimStart()}`
      if (isBlock) yield first
      yield* rest
    }
  else if (typeof value === 'string' && inLines.test(value)) {
    const end = value.endsWith('\n\n') ? '+' : value.endsWith('\n') ? '' : '-'
    yield `${indent}|${/^\s/.test(value) ? '2' : ''}${end}`
    for (const line of value.replace(/\n$/, '').split('\n')) yield line === '' ? line : `${indent}${line}`
  } else if (typeof value === 'string') yield indent + (plainWord.test(value) ? value : quoted(value))
  else yield indent + JSON.stringify(value)
}

/** JSON's quotes are YAML's too, but for characters that YAML takes for the end of a line, or not at all. */
const quoted = (text: string) =>
  JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff]/g,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  )
