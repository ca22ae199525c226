import { attachedTypes, objectTypes } from './types.js'

const titles: Readonly<Record<string, { readonly title: string }>> = { ...objectTypes, ...attachedTypes }
const titleOf = (type: string) => titles[type]?.title ?? type

/** An object as a sentence names it: `OS image debian`, `the secrets of group compute`. */
export function named(type: string, name: string): string {
  if (type === 'cluster') return 'the settings of the cluster'
  // `group.compute`
  if (type === 'secrets') return `the secrets of ${name.replace('.', ' ')}`
  return `${titleOf(type)} ${name}`
}

/** What becomes of an object, by the `action` of a dry run. */
export const participles: Readonly<Record<string, string>> = {
  create: 'created',
  update: 'changed',
  delete: 'deleted'
}

/** So many objects as a sentence names them: `1 node`, `2 switches`. */
export function numberOf(type: string, count: number): string {
  if (type === 'cluster') return 'the settings of the cluster'
  if (type === 'secrets') return `the secrets of ${count} object${count === 1 ? '' : 's'}`
  const title = titleOf(type)
  return `${count} ${title}${count === 1 ? '' : title.endsWith('ch') ? 'es' : 's'}`
}
