import { secretsKey } from './secrets.js'
import { allTags, tagKey } from './tags.js'
import type { View } from './view.js'

/** What is wrong with the objects that hang on others: tags, secrets, the cluster's settings, in files changed by hand. */
export function checkAttached(view: View): { type: string; name: string; message: string }[] {
  const problems: { type: string; name: string; message: string }[] = []
  const keys = new Set<string>()
  for (const [key, { name, osimage, tag }] of allTags(view)) {
    const add = (message: string) => problems.push({ type: 'osimagetag', name, message })
    if (name !== tagKey(osimage, tag))
      add(`tag ${tag} of OS image ${osimage} belongs in ${tagKey(osimage, tag)}.json`)
    if (!view.get('osimage', osimage)) add(`OS image ${osimage} does not exist`)
    if (keys.has(key)) add(`another image has the first place ("order": 1) for tag ${tag}`)
    keys.add(key)
  }
  const owned = new Set(
    (['node', 'group'] as const).flatMap(type => view.names(type).map(name => secretsKey(type, name)))
  )
  for (const name of view.names('secrets'))
    if (!owned.has(name))
      problems.push({ type: 'secrets', name, message: 'its node or group does not exist' })
  for (const name of view.names('cluster'))
    if (name !== 'cluster')
      problems.push({ type: 'cluster', name, message: 'there is but one, cluster.json' })
  return problems
}
