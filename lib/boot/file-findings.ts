import { ServiceError } from '../base/errors.js'
import type { Model } from '../model/model.js'
import { NodeFiles } from './node-files.js'

/** Nodes tried for a failing file: each try of a template that never ends takes seconds. */
const mostTries = 3

/** Finds files that cannot be rendered, trying each for every node that has it (rules 7.7). */
export async function fileFindings(
  model: Model,
  url: string
): Promise<{ type: 'file'; name: string; message: string }[]> {
  const files = new NodeFiles({ model, url })
  const failed = new Map<string, number>()
  // Secrets that cannot be decrypted are reported elsewhere.
  const problemsOf = (node: string, wanted: (file: string) => boolean) =>
    files.problems(node, wanted, false).catch((error: unknown) => {
      if (!(error instanceof ServiceError)) throw error
      return files.problems(node, wanted, true)
    })
  const found: { type: 'file'; name: string; message: string }[] = []
  try {
    for (const node of model.view.names('node')) {
      const tried = (file: string) => (failed.get(file) ?? 0) < mostTries
      for (const { name, problem } of await problemsOf(node, tried)) {
        const times = (failed.get(name) ?? 0) + 1
        failed.set(name, times)
        const last = times === mostTries ? '; it is tried for no further node' : ''
        found.push({ type: 'file', name, message: `node ${node}: ${problem}${last}` })
      }
    }
  } finally {
    await files.close()
  }
  return found
}
