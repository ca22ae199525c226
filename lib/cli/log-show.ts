import { problemText } from '../base/errors.js'
import { escapeControls } from '../base/log.js'
import type { Config } from '../config/types.js'
import type { Entry, LogRecord } from '../store/files/log-record.js'
import { WRITTEN } from '../store/files/stored.js'
import { readLog } from '../store/files/wal.js'

/** Objects of a record that are printed by name. */
const MOST_NAMED = 10

/** Prints the log of the state directory in words; returns whether all of it can be read. Writes nothing. */
export function showLog({ paths }: Pick<Config, 'paths'>, print: (line: string) => void): boolean {
  const { records, segments, torn, problems } = readLog(paths.state)
  for (const record of records) print(escapeControls(lineOf(record)))
  if (torn) print(`${torn.file}: what follows byte ${torn.bytes} is of a change that is not acknowledged`)
  for (const problem of problems) print(problemText(problem))
  const bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0)
  print(records.length === 0 ? 'the log is empty' : `${records.length} records, ${bytes} bytes`)
  return problems.length === 0
}

function lineOf({ number, first, time, continues, entries }: LogRecord): string {
  const named = entries.slice(0, MOST_NAMED).map(wordsOf)
  const more = entries.length > MOST_NAMED ? [`and ${entries.length - MOST_NAMED} more`] : []
  const piece =
    continues || first !== number ? ` (${continues ? 'a part' : 'the end'} of change ${first})` : ''
  return `${number} ${new Date(time).toISOString()}${piece} ${[...named, ...more].join(', ')}`
}

function wordsOf({ type, name, text, adds }: Entry): string {
  if (type === WRITTEN.type) return `the files of the records up to ${text} are written`
  if (text === undefined) return `${type}/${name} removed`
  return `${type}/${name} ${adds ? '+' : ''}${Buffer.byteLength(text)} bytes`
}
