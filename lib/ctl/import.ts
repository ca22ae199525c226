import { changed } from './change.js'
import { refused, wrongUsage } from './failure.js'
import { dryRunLines } from './render.js'
import type { Session } from './session.js'

const path = '/config/node'

/**
 * Creates and changes nodes by the lines of a CSV file (`-`: standard input), all or none (rules 12.8). Without `--yes`
 * it shows what would change, asks, and does that or nothing.
 * @throws Failure 1 where the answer is no or the controller refuses, 2 where there is no terminal to ask on
 */
export async function importTable(session: Session, file: string): Promise<void> {
  const { terminal, controller, options, paint } = session
  const table = file === '-' ? await terminal.input() : await terminal.file(file)
  const query = { format: 'csv' }
  if (options.dryrun || options.yes) return changed(session, path, table, 'imported', 'POST', query)
  const told = await controller.json('POST', path, { ...query, dryrun: 'yes' }, table)
  if (Array.isArray(told.changes) && told.changes.length === 0) return session.changed({}, 'nothing differs')
  terminal.err([...dryRunLines(told, paint), ''].join('\n'))
  if (!terminal.shows.in) throw wrongUsage('nothing was imported: there is no terminal to ask on, use --yes')
  if (!(await terminal.confirmed('Import this? [y/N] '))) throw refused('nothing was imported')
  // While it is asked about, a booting machine may change what is stored.
  const expect = typeof told.mark === 'string' ? told.mark : undefined
  await changed(session, path, table, 'imported', 'POST', { ...query, expect })
}
