// An image is packed by the controller that has its directory, whoever is asked (rules 9.15).
import { existsSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { makeTree } from '../../image/small-tree.js'
import { adminToken } from '../../support/first-start.js'
import { until } from '../../support/until.js'
import {
  allServe,
  askForPack,
  change,
  clean,
  ended,
  filesOf,
  imageOf,
  isPacking,
  job,
  LARGE,
  notes,
  packsAgain,
  temporaries,
  three
} from './packing-elsewhere.js'

t.test('a pack is done where the directory is, whoever is asked, and all serve it', async t => {
  const { first, second, third, all } = await three(t)
  const before = await filesOf(first)
  const seen = new Set(before)
  for (const asked of [first, second, third]) {
    change(second)
    const { status, body } = await asked.request('GET', '/config/osimage/compute/_pack')
    t.equal(status, 204, JSON.stringify(body))
    const names = await filesOf(first)
    t.notOk(seen.has(names[0] ?? ''), 'another pack')
    seen.add(names[0] ?? '')
    await allServe(t, all, names)
    t.strictSame([...temporaries(second), ...notes(second), ...notes(first)], [])
  }
  const wanted = await first.request('POST', '/config/osimage/compute/kernel', { kernelversion: '6.1.0-9' })
  t.equal(wanted.status, 204, JSON.stringify(wanted.body))
  t.match(await imageOf(first), { kernelversion: '6.1.0-9' })
  t.match(await first.request('POST', '/config/osimage/compute/kernel', { kernelversion: '5.0.0' }), {
    status: 400,
    body: { message: /the image has no \/boot\/vmlinuz-5\.0\.0/ }
  })
  for (const daemon of all) await daemon.stop()
})

t.test('the answer says where it runs, and it can be cancelled', async t => {
  const { first, second, third, all } = await three(t)
  const before = await imageOf(first)
  change(second, LARGE)
  const { message, request_id } = await askForPack(third)
  t.equal(message, 'queued on the controller that writes; it runs on controller c2')
  const other = await askForPack(first)
  t.equal(other.message, 'queued; it runs on controller c2')
  await until(() => isPacking(second))
  t.match(await job(first, request_id), { state: 'running', message: 'running on controller c2' })
  t.match(await job(first, other.request_id), { state: 'queued' }, 'one at a time')
  for (const id of [other.request_id, request_id])
    t.equal((await third.request('GET', `/config/status/${id}/_cancel`)).status, 200)
  for (const id of [other.request_id, request_id])
    t.match(await ended(first, id), { state: 'failed', message: /cancelled by user/ })
  await clean(t, second)
  t.strictSame(await imageOf(first), before)
  await packsAgain(t, first, all)
  for (const daemon of all) await daemon.stop()
})

// rules 9.3
t.test("an admin's kernel that only another controller has so far stays", async t => {
  const { first, second, third, all } = await three(t)
  // Somebody seems to write it still: so it is not given.
  const write = () => writeFileSync(third.path('files', 'mine'), 'mine')
  write()
  const writing = setInterval(write, 1000)
  t.teardown(() => clearInterval(writing))
  const fields = { config: { osimage: { compute: { kernelfile: 'mine' } } } }
  t.equal((await first.request('POST', '/config/osimage/compute', fields)).status, 204)
  change(second)
  t.match(await first.request('GET', '/config/osimage/compute/_pack'), {
    status: 503,
    body: { message: /field "kernelfile": the file mine is not on controller c2 so far \(controller c3 / }
  })
  t.match(await imageOf(first), { kernelfile: 'mine' })
  clearInterval(writing)
  await until(() => existsSync(second.path('files', 'mine')))
  t.equal((await first.request('GET', '/config/osimage/compute/_pack')).status, 204)
  t.match(await imageOf(first), { kernelfile: 'mine' })
  for (const daemon of all) await daemon.stop()
})

t.test('what has failed says on which controller', async t => {
  const { first, second, third, all } = await three(t)
  makeTree(first.path('images', 'login'))
  await first.create('osimage', 'login', {})
  t.equal((await first.request('GET', '/config/osimage/login/_pack')).status, 204)
  change(second)
  for (const [image, works] of [
    ['compute', 'c2'],
    ['login', 'c1']
  ] as const) {
    const fields = { config: { osimage: { [image]: { kernelversion: '5.0.0' } } } }
    t.equal((await first.request('POST', `/config/osimage/${image}`, fields)).status, 204)
    t.match(await first.request('GET', `/config/osimage/${image}/_pack`), {
      status: 503,
      body: {
        message: `pack of OS image ${image}: on controller ${works}: OS image ${image}: field "kernelversion" is 5.0.0, and `
      }
    })
  }
  const { request_id: id } = await askForPack(first)
  t.match(await ended(first, id), { message: /^failed: on controller c2: OS image compute: / })
  makeTree(third.path('images', 'hand'))
  await first.create('osimage', 'hand', {})
  t.match(await first.request('GET', '/config/osimage/hand/_pack'), {
    status: 503,
    body: {
      message: /make that directory; controller c1, which writes, has looked: a directory on another one /
    }
  })
  for (const daemon of all) await daemon.stop()
})

t.test('a stranger has no work done', async t => {
  const { first, second, all } = await three(t)
  change(second)
  const before = await filesOf(first)
  const task = { kind: 'pack', osimage: 'compute', wish: {}, check: false }
  const { port: writes } = first.client()
  const errand = { to: 'c2', writer: `http://127.0.0.1:${writes}`, revision: 1, task }
  const token = await adminToken(second.path('state'))
  for (const daemon of [first, second])
    for (const headers of [
      {},
      { 'x-access-tokens': token },
      { 'x-svcd-errand': `${Date.now()} ${'a'.repeat(32)} ${'b'.repeat(64)}` }
    ]) {
      const { port } = daemon.client()
      const response = await fetch(`http://127.0.0.1:${port}/errands`, {
        ...{ method: 'POST', body: JSON.stringify(errand), headers: headers as Record<string, string> }
      })
      t.match([response.status, await response.text()], [401, /controllers of this cluster alone may ask/])
    }
  t.strictSame(await filesOf(first), before)
  t.strictSame([...temporaries(second), ...notes(second)], [])
  for (const daemon of all) await daemon.stop()
})
