import { readdir } from 'node:fs/promises'
import { isStored } from '../backup/state-names.js'

/** What root types to move the directories of objects, and them alone, from a state directory to one beside it; `suffix` ends its name. */
export async function objectsAside(state: string, suffix: string): Promise<string> {
  const names = (await readdir(state)).filter(isStored).sort()
  const to = `${state}.${suffix}`
  return `mkdir -m 0700 ${to} && (cd ${state} && mv -t ${to} ${names.join(' ')})`
}
