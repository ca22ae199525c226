import { LRUCache } from 'lru-cache'
import { answerQuestions } from '../base/thread.js'
import { compileTemplate } from '../template/compiler.js'
import type { Template } from '../template/template.js'
import type { RenderRequest, RenderResult } from './file-renderer.js'

// Worker thread of file-renderer.ts: answers each order, in sequence.

/** Compiled templates by their text, as files and nodes share them: errors get the name of the file. */
const compiled = new LRUCache<string, Template>({
  max: 256,
  // Compiled under a neutral name, since files with the same text share it.
  memoMethod: text => compileTemplate(text, 'template', () => undefined)
})

/** The last cluster received. */
let lastCluster: object = {}
/** Values that a shared text may use. */
const common = ['name', 'path']

function render({ name, template: text, data, cluster }: RenderRequest): RenderResult {
  let isShared = cluster !== undefined
  const seen = {}
  // Getters notice whether the template uses a value of the node.
  for (const [key, value] of Object.entries(data))
    Object.defineProperty(seen, key, {
      get: () => {
        isShared &&= common.includes(key)
        return value
      }
    })
  try {
    if (cluster && cluster.parts.length > 0) lastCluster = JSON.parse(cluster.parts.join(''))
    if (cluster) Object.assign(seen, lastCluster)
    const made = compiled.memo(text).render(seen)
    return isShared ? { text: made, isShared } : { text: made }
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error)
    return { problem: said.replace(/^template:/, `${name}:`) }
  }
}

answerQuestions(render)
