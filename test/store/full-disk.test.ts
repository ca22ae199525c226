import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { StoreError } from '../../lib/store/errors.js'
import { Journal } from '../../lib/store/journal.js'
import { fillDisk, smallDisk } from '../support/small-disk.js'
import { until } from '../support/until.js'
import { node, openStore } from './fixtures.js'

const long = (name: string, character: string) => ({ ...node(name), tags: [character.repeat(30_000)] })

// rules 2.7
t.test('a change that the disk has no room for changes nothing, in memory or on disk', async t => {
  const directory = smallDisk(t)
  const store = await openStore(join(directory, 'state'))
  await store.change(tx => tx.put('node', 'a', long('a', 'x')))
  await store.change(tx => tx.put('counter', 'c', { name: 'c', value: 1 }))
  const files = () =>
    ['node', 'counter', 'intents'].map(type =>
      readdirSync(join(directory, 'state', type)).map(file => [
        file,
        readFileSync(join(directory, 'state', type, file), 'utf8')
      ])
    )
  const before = files()
  // Room for a part of the new file: the case in which a careless write leaves half of it.
  writeFileSync(join(directory, 'spare'), Buffer.alloc(10_000))
  const free = fillDisk(directory)
  rmSync(join(directory, 'spare'))
  const changes = [
    () => store.change(tx => tx.put('node', 'a', long('a', 'y'))),
    () => store.change(tx => tx.put('node', 'b', long('b', 'y'))),
    () =>
      store.change(tx => {
        tx.put('node', 'a', long('a', 'y'))
        tx.put('counter', 'c', { name: 'c', value: 2 })
      })
  ]
  for (const change of changes) {
    await t.rejects(change(), new StoreError('no space left on device (ENOSPC)'))
    t.same(files(), before)
    t.match(store.current.get('node', 'a')?.tags, [/^x+$/])
    t.same(store.current.names('node'), ['a'])
    t.equal(store.current.get('counter', 'c')?.value, 1)
    t.notOk(store.health.ok)
  }
  free()
  for (const change of changes) await t.resolves(change())
  await until(() => store.health.ok)
  await store.close()
  const again = await openStore(join(directory, 'state'))
  t.match(again.current.get('node', 'a')?.tags, [/^y+$/])
  t.same(again.current.names('node'), ['a', 'b'])
  t.equal(again.current.get('counter', 'c')?.value, 2)
  await again.close()
})

// rules 2.7, 11.3
t.test(
  'a disk that is read-only for longer than any lock lasts: changes are taken again by themselves',
  async t => {
    const directory = smallDisk(t)
    const store = await openStore(join(directory, 'state'))
    const remount = (how: string) => execFileSync('mount', ['-o', `remount,${how}`, directory])
    remount('ro')
    const error = new StoreError('read-only file system (EROFS)')
    await t.rejects(
      store.change(tx => tx.put('node', 'a', node('a'))),
      error
    )
    await sleep(process.env.SVCD_LONG ? 12_000 : 1000)
    await t.rejects(
      store.change(tx => tx.put('node', 'a', node('a'))),
      error
    )
    await t.rejects(openStore(join(directory, 'state')), { name: 'LockedError', pid: process.pid })
    remount('rw')
    await until(() => store.health.ok)
    await store.change(tx => tx.put('node', 'a', node('a')))
    await store.close()
  }
)

t.test('a journal on a full disk: whole lines only, and it goes on when there is room', async t => {
  const directory = smallDisk(t)
  const file = join(directory, 'journal')
  const open = async () => {
    const records: string[] = []
    const journal = await Journal.open<string>({
      file,
      read: record => records.push(record),
      snapshot: () => []
    })
    return { records, journal }
  }
  const { journal } = await open()
  await journal.append('first')
  writeFileSync(join(directory, 'spare'), Buffer.alloc(10_000))
  const free = fillDisk(directory)
  rmSync(join(directory, 'spare'))
  for (let i = 0; i < 3; i++) {
    await t.rejects(journal.append('z'.repeat(30_000)), new StoreError('no space left on device (ENOSPC)'))
    t.equal(readFileSync(file, 'utf8'), '"first"\n', 'no half line')
  }
  await journal.append('small')
  free()
  await journal.append('z'.repeat(30_000))
  await journal.close()
  const again = await open()
  t.same(
    again.records.map(record => record.slice(0, 5)),
    ['first', 'small', 'zzzzz']
  )
  await again.journal.close()
})
