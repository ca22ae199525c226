// A controller is lost while an image is packed by one for another (rules 9.15).
import t from 'tap'
import { makeTree, small } from '../../image/small-tree.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'
import {
  allServe,
  allThere,
  answers,
  beginPack,
  change,
  clean,
  ended,
  filesOf,
  imageOf,
  packsAgain,
  three,
  writerAmong
} from './packing-elsewhere.js'

t.test('the controller that packs is killed', async t => {
  const { first, second, all } = await three(t)
  const before = await imageOf(first)
  const id = await beginPack(first, second)
  await second.kill()
  t.match(await ended(first, id), {
    state: 'failed',
    message: 'failed: interrupted: controller c2, which ran it, was lost'
  })
  t.strictSame(await imageOf(first), before)
  const refused = {
    status: 503,
    body: { message: /OS image compute: its directory .*\/compute is on controller c2/ }
  }
  t.match(
    await first.request('GET', '/config/osimage/compute/_pack'),
    refused,
    'at once, while it is still listed'
  )
  await until(async () => {
    const { body } = await first.request('GET', '/config/osimage/compute/_pack')
    return /on controller c2, which is not there: start svcd on c2/.test(JSON.stringify(body))
  })
  await second.start()
  await answers(second)
  await allThere(first, ['c2'])
  await clean(t, second)
  await packsAgain(t, first, all)
  for (const daemon of all) await daemon.stop()
})

t.test('the controller that writes is killed while another one packs for it', async t => {
  const { first, second, third, all } = await three(t)
  const before = await imageOf(first)
  const id = await beginPack(third, second)
  await first.kill()
  const writer = await writerAmong([second, third])
  t.match(await ended(writer, id), {
    state: 'failed',
    message: 'failed: interrupted: controller c1, which had it run on c2, was lost'
  })
  await clean(t, second)
  t.strictSame(await imageOf(writer), before)
  await first.start()
  await answers(first)
  await allThere(writer, ['c1', 'c2', 'c3'])
  await packsAgain(t, writer, all)
  for (const daemon of all) await daemon.stop()
})

t.test('the controller that writes is overtaken while another one packs for it', async t => {
  const { first, second, third, all } = await three(t)
  const id = await beginPack(first, second)
  process.kill(first.child?.pid as number, 'SIGSTOP')
  const writer = await writerAmong([second, third])
  // Also while what was begun for the one before ends.
  change(second)
  t.equal((await writer.request('GET', '/config/osimage/compute/_pack')).status, 204)
  const names = await filesOf(writer)
  process.kill(first.child?.pid as number, 'SIGCONT')
  await answers(first)
  t.match(await ended(first, id), { state: 'failed', message: /^failed: interrupted: controller c1/ })
  t.strictSame(await filesOf(first), names)
  await clean(t, second)
  await allServe(t, all, names)
  for (const daemon of all) await daemon.stop()
})

t.test('the controller that has the directory is not there for a moment, and an old copy is', async t => {
  const { etcd, first, second, third, all } = await three(t)
  const home = async () => {
    const key = Buffer.from('/svcd/objects/osimage/compute').toString('base64')
    const { kvs = [] } = (await etcd.ask('kv/range', { key })) as unknown as { kvs?: { value: string }[] }
    return JSON.parse(Buffer.from(kvs[0]?.value ?? '', 'base64').toString()).controller
  }
  const path = first.path('images', 'compute')
  makeTree(path, { ...small, 'etc/old': 'old' })
  const before = await imageOf(first)
  process.kill(second.child?.pid as number, 'SIGSTOP')
  const gone =
    /on controller c2, which is not there: .* to use the directory .*compute of controller c1 from now/
  const isAway = () => until(async () => !(await isThere(first, 'c2')))
  await isAway()
  await first.create('group', 'g', {})
  for (const [method, asked, body, status] of [
    ['GET', 'osimage/compute/_pack', undefined, 503],
    ['POST', 'osimage/compute/kernel', { kernelversion: '6.1.0-9' }, 503],
    ['POST', 'osimage/compute/_clone', { newosimage: 'copy' }, 503],
    ['POST', 'group/g/_ospush', { osimage: 'compute' }, 404]
  ] as const)
    t.match(await first.request(method, `/config/${asked}`, body), { status, body: { message: gone } }, asked)
  t.strictSame(await imageOf(first), before)
  t.equal(await home(), 'c2')
  const read = (await first.request('GET', '/config/osimage/compute')).body as object
  t.equal((await first.request('POST', '/config/osimage/compute', read)).status, 204)
  t.equal(await home(), 'c2', 'what was read is posted back')
  process.kill(second.child?.pid as number, 'SIGCONT')
  await answers(second)
  await allThere(first, ['c2'])
  const say = (path: string | null) =>
    third.request('POST', '/config/osimage/compute', { config: { osimage: { compute: { path } } } })
  t.equal((await say(null)).status, 204)
  t.equal(await home(), 'c2', 'it is there')
  change(second)
  await packsAgain(t, first, all)

  await second.kill()
  await isAway()
  t.equal((await say(path)).status, 204)
  t.equal(await home(), 'c1')
  t.match(
    first.log(),
    /compute: its directory is the one of controller c1 from now on, and not that of controller c2/
  )
  await second.start()
  await answers(second)
  await allThere(first, ['c2'])
  change(first)
  await packsAgain(t, first, all)
  t.equal(await home(), 'c1')
  for (const daemon of all) await daemon.stop()
})

t.test('the controller that packs stands still', async t => {
  const { first, second, all } = await three(t)
  const before = await imageOf(first)
  const id = await beginPack(first, second)
  process.kill(second.child?.pid as number, 'SIGSTOP')
  t.match(await ended(first, id), {
    state: 'failed',
    message: 'failed: interrupted: controller c2, which ran it, was lost'
  })
  process.kill(second.child?.pid as number, 'SIGCONT')
  await clean(t, second)
  t.strictSame(await imageOf(first), before)
  await answers(second)
  await allThere(first, ['c2'])
  await packsAgain(t, first, all)
  for (const daemon of all) await daemon.stop()
})
