import { StoreError } from '../store/errors.js'
import type { ImageContext } from './context.js'
import type { Intent, RemovalIntent, TreeIntent } from './intents.js'
import { removeHidden, settle } from './place-tree.js'
import { discard } from './publish.js'
import { decideRemoval, hideLeft } from './removals.js'

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
      if (intent.kind === 'removal') await hideLeft(context, intent)
      try {
        if (await isToRemove(context, intent)) later.push(intent)
      } catch (error) {
        if (!context.controllers || !(error instanceof StoreError)) throw error
        intents.undecided.add(intent)
      }
    })
  }
  return async () => {
    for (const intent of later) await guarded(intent, () => removeHidden(context, intent))
  }
}

/**
 * Puts right by what is stored where the directory of a note is; gives whether what has its hidden name is to be removed. What
 * another controller has to store first is undecided until then.
 */
async function isToRemove(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<boolean> {
  if (intent.kind === 'tree') {
    await settle(context, intent)
    return true
  }
  // Where nothing is hidden, the record of the directory is still there, and a request removes it.
  const decided = await decideRemoval(context, intent)
  if (decided === 'later') context.intents.undecided.add(intent)
  return decided === 'gone'
}

/**
 * The same for a note that is undecided, once it is known what is stored. Throws StoreError where that is not known now: it is
 * undecided still.
 */
export async function decide(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<boolean> {
  const { intents, model } = context
  await model.known()
  intents.undecided.delete(intent)
  try {
    return await isToRemove(context, intent)
  } catch (error) {
    intents.undecided.add(intent)
    throw error
  }
}

function nameOf(intent: Intent): string {
  if (intent.kind === 'pack') return 'a pack'
  return `the ${intent.kind === 'tree' ? 'making' : 'removal'} of directory ${intent.target}`
}
