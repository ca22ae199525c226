import { compareNames } from '../store/order.js'
import type { TypeName } from './docs.js'
import type { View } from './view.js'

/** Field by which a node or its group refers to an object that it may inherit. */
const inheritedBy: Partial<Record<TypeName, 'osimage' | 'bmcsetupname'>> = {
  osimage: 'osimage',
  bmcsetup: 'bmcsetupname'
}

/** The nodes whose effective value this object is, in natural order (rules 3.10). */
export function members(view: View, type: TypeName, name: string): string[] {
  if (type === 'group') return [...(view.index.members(name)?.all.values ?? [])]
  const field = inheritedBy[type]
  if (field === undefined) return []
  const nodes: string[] = []
  for (const user of view.index.users({ type, name })) {
    if (user.type === 'node') nodes.push(user.name)
    if (user.type === 'group')
      for (const member of view.index.members(user.name)?.all.values ?? [])
        if (view.get('node', member)?.[field] === undefined) nodes.push(member)
  }
  return nodes.sort(compareNames)
}
