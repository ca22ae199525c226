import type { JsonObject } from '../base/json.js'
import { makeChange } from './change.js'
import { dryRunLines } from './render.js'
import type { Session, Verb } from './session.js'

const path = '/config/node'
const query = { format: 'csv' }

/** Creates and changes nodes by a table, all or none (rules 12.8); shows the changes and asks first. */
export const importVerb: Verb<''> = {
  operands: 'FILE',
  summary: 'create and change nodes by a table in CSV; - is standard input',
  options: ['output', 'dryrun', 'yes'],
  async run(session, _type, [file = '']) {
    const { terminal, controller, options, paint } = session
    const table = file === '-' ? await terminal.input() : await terminal.file(file)
    if (options.dryrun || options.yes) return makeChange(session, path, table, 'imported', 'POST', query)
    const told = await controller.json('POST', path, { ...query, dryrun: 'yes' }, table)
    if (Array.isArray(told.changes) && told.changes.length === 0)
      return session.changed({}, 'nothing differs')
    terminal.err([...dryRunLines(told, paint), ''].join('\n'))
    await session.confirm('Import this?', 'nothing was imported')
    await importAsShown(session, table, told, 'imported')
  }
}

/** Imports a table if it would still change what its dry run has `told`: an answer may take a while. */
export function importAsShown(session: Session, table: Buffer, { mark }: JsonObject, done: string) {
  const expect = typeof mark === 'string' ? mark : undefined
  return makeChange(session, path, table, done, 'POST', { ...query, expect })
}
