import t from 'tap'
import { Register } from '../lib/composition.js'
import type { ClusterStore } from '../lib/model/stored.js'
import type { RoleListener } from '../lib/store/role.js'

t.test('parts hear of events in the order in which they were added, and close in reverse', async t => {
  const commits: ((changes: readonly never[], more: boolean) => void)[] = []
  const roles: RoleListener[] = []
  const store = {
    subscribe: (listener: (typeof commits)[number]) => void commits.push(listener),
    role: { subscribe: (listener: RoleListener) => void roles.push(listener) }
  } as unknown as ClusterStore
  const said: string[] = []
  const part = (name: string) => ({ close: () => said.push(`${name} closes`) })
  const hooks = (name: string) => ({
    changes: () => void said.push(`${name} changes`),
    requested: () => void said.push(`${name} requested`),
    role: {
      becameLeader: () => void said.push(`${name} leads`),
      steppedDown: () => void said.push(`${name} follows`)
    },
    condition: () => ({ ok: true, reason: name })
  })
  const register = new Register()
  register.add(part('medium'))
  register.connect(store)
  const first = part('first')
  t.equal(register.add(first, hooks('first')), first)
  register.add({}, hooks('second'))
  register.add(part('third'), { close: () => said.push('third closes in its own way') })
  for (const commit of commits) commit([], false)
  register.requested([])
  for (const role of roles) role.becameLeader?.()
  for (const role of roles) role.steppedDown?.()
  await register.close()
  t.strictSame(said, [
    ...['changes', 'requested', 'leads', 'follows'].flatMap(what => [`first ${what}`, `second ${what}`]),
    'third closes in its own way',
    'first closes',
    'medium closes'
  ])
  t.strictSame(
    register.conditions.map(condition => condition()?.reason),
    ['first', 'second']
  )
})
