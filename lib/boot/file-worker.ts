import { parentPort } from 'node:worker_threads'
import { compileTemplate } from '../template/compiler.js'
import type { Template } from '../template/template.js'
import type { RenderAnswer, RenderOrder } from './file-renderer.js'

// The thread that file-renderer.ts starts: one answer for each order, in their order.

/** Compiled templates by their text: nodes ask for the same ones. */
const compiled = new Map<string, Template>()
const mostCompiled = 256

/** The cluster as it was sent last. */
let kept: object = {}
/** Values that a text may use and still be the same for all nodes. */
const common = ['name', 'path']

function render({ name, template: text, data, cluster }: RenderOrder): RenderAnswer {
  let isShared = cluster !== undefined
  const seen = {}
  // Each value of the node's own tells that it was looked at.
  for (const [key, value] of Object.entries(data))
    Object.defineProperty(seen, key, {
      get: () => {
        isShared &&= common.includes(key)
        return value
      }
    })
  try {
    if (cluster && cluster.parts.length > 0) kept = JSON.parse(cluster.parts.join(''))
    if (cluster) Object.assign(seen, kept)
    let template = compiled.get(text)
    if (template === undefined) {
      if (compiled.size >= mostCompiled) compiled.clear()
      // Two files of one text have errors that name the first: so the name is a part of it where it fails.
      template = compileTemplate(text, 'template', () => undefined)
      compiled.set(text, template)
    }
    const made = template.render(seen)
    return isShared ? { text: made, isShared } : { text: made }
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error)
    return { problem: said.replace(/^template:/, `${name}:`) }
  }
}

// The time limit of the first order begins now.
parentPort?.postMessage('ready')
parentPort?.on('message', (order: RenderOrder) => parentPort?.postMessage(render(order)))
