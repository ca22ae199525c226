import { parentPort } from 'node:worker_threads'
import { compileTemplate } from '../template/compiler.js'
import type { Template } from '../template/template.js'
import type { RenderAnswer, RenderOrder } from './file-renderer.js'

// The thread that file-renderer.ts starts: one answer for each order, in their order.

/** Compiled templates by their text: nodes ask for the same ones. */
const compiled = new Map<string, Template>()
const mostCompiled = 256

function render({ name, template: text, data }: RenderOrder): RenderAnswer {
  try {
    let template = compiled.get(text)
    if (template === undefined) {
      if (compiled.size >= mostCompiled) compiled.clear()
      // Two files of one text have errors that name the first: so the name is a part of it where it fails.
      template = compileTemplate(text, 'template', () => undefined)
      compiled.set(text, template)
    }
    return { text: template.render(data) }
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error)
    return { problem: said.replace(/^template:/, `${name}:`) }
  }
}

// The time limit of the first order begins now.
parentPort?.postMessage('ready')
parentPort?.on('message', (order: RenderOrder) => parentPort?.postMessage(render(order)))
