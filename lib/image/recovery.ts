import { exists } from '../disk/missing.js'
import type { Workshop } from './context.js'
import type { Work } from './intents.js'
import { pathsOf, settle } from './place-tree.js'
import { discard } from './publish.js'
import { hideOwnTree, removeHidden } from './removal.js'
import { removeTree } from './tree.js'

/**
 * Puts right what an earlier daemon was interrupted in: each place holds what it held before, or what the store says by
 * now. Returns what takes its time and may go on while the daemon serves: the removal of large directories. What
 * fails is logged, and tried again by the next start. Never throws.
 */
export async function recover(shop: Workshop): Promise<() => Promise<void>> {
  const { works, log } = shop
  const later: (() => Promise<void>)[] = []
  const guarded = (work: Work, step: () => Promise<void>) => async () => {
    try {
      await step()
    } catch (error) {
      log.error(`work that was interrupted (note ${work.id}): ${(error as Error).message}`)
    }
  }
  const left = await works.left(file => log.error(`${file} is no note of svcd's, and is left alone`))
  for (const work of left) {
    log.info(
      `putting right what was interrupted: ${work.kind}${work.kind === 'pack' ? '' : ` ${work.target}`}`
    )
    if (work.kind === 'pack') await discard(shop, work)
    else if (work.kind === 'removal')
      await guarded(work, async () => {
        // Before anybody else does something at that place.
        await hideOwnTree(shop, work)
        later.push(
          guarded(work, async () => {
            await removeHidden(shop, work)
          })
        )
      })()
    else
      await guarded(work, async () => {
        const { directory } = shop.config.image
        await settle(directory, work, shop.model.view)
        later.push(
          guarded(work, async () => {
            const { work: hidden } = await pathsOf(directory, work)
            if (await exists(hidden)) await removeTree(hidden)
            await works.drop(work.id)
          })
        )
      })()
  }
  return async () => {
    for (const step of later) await step()
  }
}
