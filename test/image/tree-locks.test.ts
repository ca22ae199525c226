// rules 9.15
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { TreeLocks } from '../../lib/image/tree-reconciler.js'

/** Closed until it is opened. */
function gateOf() {
  let open = () => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  return { opened, open: () => open() }
}

const signal = new AbortController().signal

t.test('one after the other works on a directory, and on what it is in', async t => {
  const locks = new TreeLocks()
  const said: string[] = []
  const run = (name: string, lanes: string[], gate = Promise.resolve()) =>
    locks.run(lanes, signal, async () => {
      said.push(`${name} begins`)
      await gate
      said.push(`${name} ends`)
    })
  const gate = gateOf()
  const all = [
    run('first', ['osimage a', 'tree /images/a'], gate.opened),
    run('same image', ['osimage a', 'tree /images/b']),
    run('within', ['osimage c', 'tree /images/a/c']),
    run('above', ['osimage d', 'tree /images']),
    run('other', ['osimage e', 'tree /images-e'])
  ]
  await all[4]
  t.strictSame(said, ['first begins', 'other begins', 'other ends'])
  gate.open()
  await Promise.all(all)
  t.equal(said[3], 'first ends')
  t.equal(said.length, 10)
  t.end()
})

t.test('who waits can be stopped, and what fails frees the directory', async t => {
  const locks = new TreeLocks()
  const gate = gateOf()
  const first = locks.run(['tree /a'], signal, () => gate.opened)
  const stopping = new AbortController()
  const second = locks.run(['tree /a'], stopping.signal, async () => t.fail('it was stopped'))
  let isThird = false
  const third = locks.run(['tree /a'], signal, async () => {
    isThird = true
  })
  stopping.abort(new Error('stopped'))
  await t.rejects(second, { message: 'stopped' })
  await nextTurn()
  t.notOk(isThird, 'it waits for the first one all the same')
  gate.open()
  await Promise.all([first, third])
  await t.rejects(
    locks.run(['tree /a'], signal, async () => {
      throw new Error('broken')
    }),
    { message: 'broken' }
  )
  t.equal(await locks.run(['tree /a'], signal, async () => 1), 1)
  t.end()
})
