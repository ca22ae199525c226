import type { ImageContext } from './context.js'
import type { Intent } from './intents.js'
import { finishPlacement, settle } from './place-tree.js'
import { discard } from './publish.js'
import { finishRemoval, isHidden } from './removal.js'

/**
 * Puts right what an earlier daemon was interrupted in: each place holds what it held before, or what the store says by
 * now. Gives what takes its time and may go on while the daemon serves: the removal of large directories. What fails
 * is logged, and tried again by the next start. Never throws.
 */
export async function recover(context: ImageContext): Promise<() => Promise<void>> {
  const { intents, log } = context
  const later: [Intent, () => Promise<void>][] = []
  const guarded = (intent: Intent, step: () => Promise<void>) =>
    step().catch(error => log.error(`an interrupted ${nameOf(intent)} (note ${intent.id}): ${error.message}`))
  for (const intent of await intents.left(file =>
    log.error(`${file} is no note of svcd's, and is left alone`)
  )) {
    log.info(`putting right an interrupted ${nameOf(intent)}`)
    await guarded(intent, async () => {
      const rest = await begin(context, intent)
      if (rest) later.push([intent, rest])
    })
  }
  return async () => {
    for (const [intent, rest] of later) await guarded(intent, rest)
  }
}

const nameOf = (intent: Intent) => (intent.kind === 'pack' ? 'pack' : `${intent.kind} of ${intent.target}`)

/** Does what must be done before anything else happens in those places; gives the rest, if there is any. */
async function begin(context: ImageContext, intent: Intent): Promise<(() => Promise<void>) | undefined> {
  if (intent.kind === 'tree') {
    await settle(context, intent)
    return () => finishPlacement(context, intent)
  }
  if (intent.kind === 'pack') await discard(context, intent)
  else if (await isHidden(context, intent)) return () => finishRemoval(context, intent)
  // The record of the directory is still there, and a request removes it.
  else await context.intents.drop(intent.id)
  return undefined
}
