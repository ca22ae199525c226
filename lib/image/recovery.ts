import { StoreError } from '../store/errors.js'
import type { ImageContext } from './context.js'
import type { Intent, RemovalIntent, TreeIntent } from './intents.js'
import { removeHidden, settle } from './place-tree.js'
import { discard } from './publish.js'
import { decideRemoval, hideLeft } from './removals.js'

/**
 * Repairs what an earlier daemon left unfinished. After that, each place holds its old content, or what is
 * stored. Returns the part that may take long: the removal of large directories. Failures are logged, and the
 * next start tries again. Never throws.
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
 * Repairs the directory of a note by what is stored; returns whether the hidden directory has to be removed.
 * Where the leader has to store something first, the note is undecided.
 */
async function isToRemove(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<boolean> {
  if (intent.kind === 'tree') {
    await settle(context, intent)
    return true
  }
  // Where nothing is hidden, the record of the directory is still there, and a removal starts from it.
  const decided = await decideRemoval(context, intent)
  if (decided === 'later') context.intents.undecided.add(intent)
  return decided === 'gone'
}

/**
 * Repairs the directory of an undecided note. Throws StoreError where it is still not known what is stored;
 * the note stays undecided.
 */
export async function decide(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<boolean> {
  const { intents, model } = context
  await model.readBarrier()
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
