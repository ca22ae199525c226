import type { JsonObject } from '../json.js'
import type { Query } from './controller.js'
import { wrongUsage } from './failure.js'
import { finished } from './progress.js'
import { dryRunLines } from './render.js'
import type { Session } from './session.js'
import type { ReadText } from './values.js'

/**
 * Makes a change, or asks what it would change, and shows the answer; where the change takes long, when it is done. `done`
 * is what to say where the answer has no text.
 */
export async function changed(
  session: Session,
  path: string,
  body: JsonObject | Buffer | undefined,
  done: string | (() => Promise<string>),
  method: 'GET' | 'POST' = 'POST',
  more: Query = {}
): Promise<void> {
  const { controller, options, format, paint } = session
  if (format === 'csv') throw wrongUsage('there is no CSV of this: -o takes text or json')
  const query = options.dryrun ? { ...more, dryrun: 'yes' } : more
  const answer = await finished(session, await controller.json(method, path, query, body))
  if (!options.dryrun || format === 'json')
    return session.changed(answer, typeof done === 'string' ? done : await done())
  await session.lines(dryRunLines(answer, paint))
}

/** Where `@FILE` and `-` are read from. Throws Failure 2 where standard input is needed twice. */
export function reader({ terminal }: Session): ReadText {
  let isRead = false
  return async (place, { name, secret }) => {
    if (place !== '-') return terminal.file(place)
    if (secret && terminal.shows.in) return Buffer.from(await terminal.hidden(`${name}: `))
    if (isRead) throw wrongUsage(`${name}=-: one field alone can be read from standard input`)
    isRead = true
    return terminal.input()
  }
}
