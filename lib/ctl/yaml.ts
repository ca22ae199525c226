import type { JsonValue } from '../base/json.js'

/** Strings that need no quotes in YAML 1.1 or 1.2: never numbers, dates, booleans or comments. */
const plainWord = /^(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_/][\w./-]*(?: [\w./-]+)*$/i
/** Texts that fit a block scalar: no control characters, no first line of blanks alone. */
const inLines = /^(?!\s*$)[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*(?:\n[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*)+$/u

/** Yields a value as YAML that every parser reads like its JSON. */
export function* yamlLines(value: JsonValue, indent = ''): Generator<string> {
  if (Array.isArray(value) && value.length > 0)
    for (const one of value) {
      let lead = `${indent}- `
      // Further lines of an entry are aligned with its first line.
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

/** Quotes a string as JSON, and escapes characters that YAML rejects or takes for line ends. */
const quoted = (text: string) =>
  JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff]/g,
    one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  )
