import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { StoreError } from '../../lib/store/errors.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import { fillDisk, smallDisk } from '../support/small-disk.js'
import { until } from '../support/until.js'
import { node, openStore } from './fixtures.js'
import { openValues } from './node-values.js'

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

t.test('records on a full disk: whole ones only, and it goes on when there is room', async t => {
  const directory = smallDisk(t, '2m')
  const open = async () => {
    const medium = new FileMedium({ directory: join(directory, 'state') })
    await medium.lock()
    await medium.start([])
    const { values, put, records } = await openValues(medium)
    const close = async () => {
      await records.close()
      await medium.close()
    }
    return { values, put, close }
  }
  const { put, close } = await open()
  await put('a', 'first')
  writeFileSync(join(directory, 'spare'), Buffer.alloc(10_000))
  const free = fillDisk(directory)
  rmSync(join(directory, 'spare'))
  // More than the log has preallocated.
  const large = 'z'.repeat(3_000_000)
  for (let i = 0; i < 3; i++)
    await t.rejects(put('b', large), new StoreError('no space left on device (ENOSPC)'))
  await put('c', 'small')
  free()
  await put('d', 'z'.repeat(30_000))
  await close()
  const again = await open()
  t.same([...again.values.keys()].sort(), ['a', 'c', 'd'])
  t.equal(again.values.get('a'), 'first')
  await again.close()
})
