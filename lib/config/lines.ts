import { isUtf8 } from 'node:buffer'
import { readFileSync, statSync } from 'node:fs'
import ini from 'ini'
import type { Problem } from '../base/errors.js'
import { table, usersDoc } from './keys.js'
import { shown } from './types.js'

/** A `key = value` of the ini, with quotes and escapes of the value resolved. */
export interface Entry {
  readonly section: string
  readonly key: string
  /** Undefined: the value has a problem that is reported already. */
  readonly value: string | undefined
  readonly line: number
}

const largestFile = 4 * 1024 ** 2
const longestValue = 8192

/** Returns the text of the ini, or why it cannot be read. Drops a byte order mark. */
export function readText(file: string): string | Problem {
  let bytes: Buffer
  try {
    const stat = statSync(file)
    // A device or pipe might never end.
    if (!stat.isFile()) return { file, message: 'is not a regular file' }
    if (stat.size > largestFile) return { file, message: `is larger than ${largestFile} bytes` }
    bytes = readFileSync(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const hint =
      code === 'EACCES'
        ? '; run svcd as root, or as a user of its group (root:svcd, mode 0640)'
        : code === 'ENOENT'
          ? '; name the ini of your svcd: --config FILE'
          : ''
    return { file, message: `cannot be read: ${message}${hint}` }
  }
  if (isUtf8(bytes)) return new TextDecoder().decode(bytes)
  const lines = bytes.toString('latin1').split('\n')
  const line = lines.findIndex(text => !isUtf8(Buffer.from(text, 'latin1'))) + 1
  return { file, line, message: 'is not UTF-8' }
}

/** Splits the ini into keys and headers, one per line, and reports malformed lines (rules 7.3). */
export function scanLines(file: string, text: string) {
  const entries: Entry[] = []
  const sections: { name: string; line: number }[] = []
  const problems: Problem[] = []
  let section: string | undefined
  for (const [index, raw] of text.split('\n').entries()) {
    const line = index + 1
    const trimmed = raw.trim()
    const equals = trimmed.indexOf('=')
    const problem = (message: string) => problems.push({ file, line, message })
    if (/^(?:$|[#;])/.test(trimmed)) continue
    if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(trimmed)) problem('holds a control character')
    else if (trimmed.startsWith('[')) {
      const [, name, rest] = /^\[([^\]]*)\](.*)$/.exec(trimmed) ?? []
      // Keys below an unreadable header belong to no section, and are not reported.
      section = name?.trim() ?? ''
      if (name === undefined) problem('a section is written [name]')
      else sections.push({ name: section, line })
      if (rest) problem(`text after [${section}]: a comment needs a line of its own`)
    } else if (equals < 1) problem('is neither "key = value", a [section] nor a comment')
    else {
      const key = trimmed.slice(0, equals).trim()
      const read = readValue(trimmed.slice(equals + 1).trim())
      if (section === undefined) problem(`key ${shown(key)} stands before the first section`)
      else {
        if ('fault' in read) problem(`[${section}] ${shown(key)} ${read.fault}`)
        entries.push({ section, key, value: 'fault' in read ? undefined : read.value, line })
      }
    }
  }
  return { entries, sections, problems }
}

/** Resolves quotes and escapes, or returns the fault, without the value, which may be a secret. */
function readValue(raw: string): { value: string } | { fault: string } {
  if (raw.length > longestValue) return { fault: `is longer than ${longestValue} characters` }
  const quote = raw[0]
  if (quote === '"' || quote === "'") {
    const closed = raw.length > 1 && raw.endsWith(quote)
    // The library would read '5' and 'true' as JSON.
    if (closed && quote === "'") return { value: raw.slice(1, -1) }
    const value = ini.unsafe(raw)
    if (closed && value !== raw) return { value }
    const pair = 'one pair of quotes around the whole value, no comment after it, escapes as in JSON'
    return { fault: `is quoted wrongly: ${pair}` }
  }
  const sign = /(?:^|[^\\])(?:\\\\)*([;#])/.exec(raw)?.[1]
  return sign
    ? { fault: `would be cut at ${sign}: put the value in double quotes, a comment on a line of its own` }
    : { value: ini.unsafe(raw) }
}

/** Returns the shipped ini (rules 7.1, 7.4). `settings` (`section.key` → value) replace its defaults. */
export function iniText(settings: Readonly<Record<string, string>> = {}): string {
  const lines = [
    '# svcd: cluster provisioning and configuration service. ' +
      '`svcd check` checks this file; a restart reads it.',
    "# A relative path is relative to this file's directory. " +
      'Durations and sizes have a unit: 30s, 10m, 4h, 7d; 64k,',
    '# 1m, 2g. A comment has a line of its own; a value with ; or # stands in double quotes.'
  ]
  for (const [section, keys] of Object.entries(table)) {
    lines.push('', `[${section}]`)
    for (const [name, key] of Object.entries(keys)) {
      const value = settings[`${section}.${name}`] ?? key.default
      lines.push(`# ${key.doc}`, `${name} = ${value === '' ? '' : ini.safe(value)}`.trimEnd())
    }
    if (section === 'auth') lines.push('', '[users]', ...usersDoc.map(line => `# ${line}`))
  }
  return `${lines.join('\n')}\n`
}
