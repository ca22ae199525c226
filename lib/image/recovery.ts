import { removeTree } from '../disk/remove-tree.js'
import type { ImageContext } from './context.js'
import type { Intent } from './intents.js'
import { pathsOf, settle } from './place-tree.js'
import { discard } from './publish.js'
import { finishRemoval, isHidden } from './removal.js'

/**
 * Puts right what an earlier daemon was interrupted in: each place holds what it held before, or what the store says by
 * now. Returns what takes its time and may go on while the daemon serves: the removal of large directories. What
 * fails is logged, and tried again by the next start. Never throws.
 */
export async function recover(context: ImageContext): Promise<() => Promise<void>> {
  const { intents, log } = context
  const later: (() => Promise<void>)[] = []
  const guarded = (work: Intent, step: () => Promise<void>) => async () => {
    try {
      await step()
    } catch (error) {
      log.error(`work that was interrupted (note ${work.id}): ${(error as Error).message}`)
    }
  }
  const left = await intents.left(file => log.error(`${file} is no note of svcd's, and is left alone`))
  for (const work of left) {
    log.info(
      `putting right what was interrupted: ${work.kind}${work.kind === 'pack' ? '' : ` ${work.target}`}`
    )
    if (work.kind === 'pack') await discard(context, work)
    else if (work.kind === 'removal')
      await guarded(work, async () => {
        // Else the record of the directory is still there, and it is removed as a request.
        if (await isHidden(context, work)) later.push(guarded(work, () => finishRemoval(context, work)))
        else await intents.drop(work.id)
      })()
    else
      await guarded(work, async () => {
        const { directory } = context.config.image
        await settle(directory, work, context.model.view)
        later.push(
          guarded(work, async () => {
            const { work: hidden } = await pathsOf(directory, work)
            await removeTree(hidden)
            await intents.drop(work.id)
          })
        )
      })()
  }
  return async () => {
    for (const step of later) await step()
  }
}
