import { compileTemplate } from '../../lib/template/compiler.js'
import { TemplateError } from '../../lib/template/errors.js'
import type { Template } from '../../lib/template/template.js'
import type { Answer } from './reference.js'

/** Renders `name` of `files`, as Reference.render() does with jinja2. */
export function render(
  files: Readonly<Record<string, string>>,
  name: string,
  data: Readonly<Record<string, unknown>>
): Answer {
  const find = (wanted: string): Template | undefined => {
    const source = Object.hasOwn(files, wanted) ? files[wanted] : undefined
    return source === undefined ? undefined : compileTemplate(source, wanted, find)
  }
  try {
    const template = find(name)
    if (template === undefined) throw new TemplateError(name, 1, 1, 'there is no such template')
    return { text: template.render(data) }
  } catch (error) {
    // anything else is a bug, not an answer
    if (!(error instanceof TemplateError)) throw error
    return { error: error.message }
  }
}
