// The controller that has the directory of an image is away, and another one has an old copy (rules 9.15).
import t from 'tap'
import { makeTree, small } from '../../image/small-tree.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'
import { allThere, answers, change, imageOf, packsAgain, three } from './packing-elsewhere.js'

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
  t.match(await first.request('GET', '/config/osimage/compute/_pack'), {
    status: 503,
    body: { message: /compute is on controller c2, and controller c1 writes: make c2 the one that writes/ }
  })
  t.strictSame(await imageOf(first), before)

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

t.test(
  'a directory that is on a controller that does not write is named with where it was looked for',
  async t => {
    const { first, third, all } = await three(t)
    makeTree(third.path('images', 'hand'))
    await first.create('osimage', 'hand', {})
    t.match(await first.request('GET', '/config/osimage/hand/_pack'), {
      status: 503,
      body: {
        message: /make that directory; controller c1, which writes, has looked: a directory on another one /
      }
    })
    for (const daemon of all) await daemon.stop()
  }
)
