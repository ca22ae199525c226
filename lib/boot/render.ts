import { unavailable } from '../errors.js'
import { TemplateError } from '../template/errors.js'
import type { Templates } from '../template/templates.js'

/** The text of a template with this data, for an answer. Throws 503 with the place of what is wrong with the template. */
export function render(templates: Templates, name: string, data: object): string {
  try {
    return templates.render(name, { ...data })
  } catch (error) {
    throw error instanceof TemplateError ? unavailable(`template ${error.message}`) : error
  }
}
