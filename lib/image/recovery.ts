import type { ImageContext } from './context.js'
import type { Intent, RemovalIntent, TreeIntent } from './intents.js'
import { removeHidden, settle } from './place-tree.js'
import { discard } from './publish.js'
import { hideLeft, isHidden } from './removal.js'

/**
 * Puts right what an earlier daemon left unfinished. After that, each place holds what it held before, or what the store
 * says now. Gives the part that takes long and may go on while the daemon serves: the removal of large directories. What
 * fails is logged, and the next start tries it again. Never throws.
 */
export async function recover(context: ImageContext): Promise<() => Promise<void>> {
  const { intents, log } = context
  const later: (TreeIntent | RemovalIntent)[] = []
  const guarded = (intent: Intent, step: () => Promise<void>) =>
    step().catch(error =>
      log.error(
        `${nameOf(intent)} was interrupted and is not put right (note ${intent.id}): ${error.message}`
      )
    )
  const left = await intents.left(file => log.error(`${file} is no note of svcd's, and is left alone`))
  for (const intent of left) {
    log.info(`${nameOf(intent)} was interrupted and is put right`)
    await guarded(intent, async () => {
      if (intent.kind === 'pack') return discard(context, intent)
      if (intent.kind === 'tree') await settle(context, intent)
      else {
        await hideLeft(context, intent)
        // Where nothing is hidden, the record of the directory is still there, and a request removes it.
        if (!(await isHidden(context, intent))) return intents.drop(intent.id)
      }
      later.push(intent)
    })
  }
  return async () => {
    for (const intent of later) await guarded(intent, () => removeHidden(context, intent))
  }
}

function nameOf(intent: Intent): string {
  if (intent.kind === 'pack') return 'a pack'
  return `the ${intent.kind === 'tree' ? 'making' : 'removal'} of directory ${intent.target}`
}
