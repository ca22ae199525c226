import { unavailable } from '../errors.js'
import { TemplateError } from '../template/errors.js'
import type { Templates } from '../template/templates.js'

/** Renders a template for an answer. Throws 503, which says where the template is wrong. */
export function render(templates: Templates, name: string, data: object): string {
  try {
    return templates.render(name, data as Readonly<Record<string, unknown>>)
  } catch (error) {
    throw error instanceof TemplateError ? unavailable(`template ${error.message}`) : error
  }
}
