import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type RecordChange, Records } from '../../lib/store/records.js'
import { until } from '../support/until.js'

// rules 11.1
t.test('records: what is stored soon is stored while others are appended without a pause', async t => {
  const written = new Set<string>()
  const records = new Records<{ name: string }>({
    kind: 'node-boots',
    texts: [],
    damaged: () => {},
    text: async () => undefined,
    store: {
      ...{ isShared: false, isReadOnly: false, takesAddition: () => false },
      async write(_: string, changes: readonly RecordChange[]) {
        await sleep(2)
        for (const { name } of changes) written.add(name)
      }
    },
    memory: {
      ...{ namesIn: ({ name }) => [name], appliesOnceStored: () => false },
      ...{ names: () => [], recordsOf: name => [{ name }], replaceRecords() {}, reset() {} }
    }
  })
  let isOver = false
  const clients = Array.from({ length: 32 }, async (_, i) => {
    for (let n = 0; !isOver; n++) {
      await records.append({ name: `report ${i}` })
      await sleep((i + n) % 3)
    }
  })
  const soon = Array.from({ length: 300 }, (_, i) => `boot ${i}`)
  for (const name of soon) records.soon(name)
  await until(() => soon.every(name => written.has(name))).finally(() => {
    isOver = true
  })
  await Promise.all(clients)
  t.ok(soon.every(name => written.has(name)))
  await records.close()
})
