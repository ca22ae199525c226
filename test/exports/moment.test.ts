import t from 'tap'
import { exported } from '../../lib/exports/formats.js'
import type { State } from '../../lib/store/state.js'
import { settings, view } from '../services/cluster.js'

// rules 12.11
t.test('an export is of one moment, whenever a change comes', async t => {
  const at = (one: string, other: string) => ({ n1: { group: one }, n2: { group: other } })
  const [before, after] = [at('a', 'b'), at('b', 'a')]
  const seen = new Set<string>()
  for (let moment = 0; moment < 20; moment++) {
    const state = view({ group: { a: {}, b: {} }, node: before }) as State<never, never>
    const sources = { view: state, cluster: settings, state: () => null, report: () => undefined }
    const named = function* () {
      yield
      return ['n1', 'n2']
    }
    let [text, step] = ['', 0]
    for (const part of exported('genders', sources, { named, isWhole: true, port: 9100, host: undefined })) {
      text += part
      if (step++ !== moment) continue
      for (const [name, node] of Object.entries(after))
        state.set('node' as never, name, { name, ...node } as never)
    }
    seen.add(text.replace(/^#.*\n/, ''))
  }
  t.strictSame([...seen].sort(), ['n1 all,group=a\nn2 all,group=b', 'n1 all,group=b\nn2 all,group=a'])
})
