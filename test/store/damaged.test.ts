// The daemon on an etcd whose objects break rules, that is restored under it, or that has no room: machines
// boot all the same. Rules 11.14.
import t from 'tap'
import { controllerOn, isPrimary, twoControllers } from '../support/controllers.js'
import type { Daemon } from '../support/daemon.js'
import { type EtcdServer, startEtcd } from '../support/etcd.js'
import { svcd } from '../support/svcd.js'
import { until } from '../support/until.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const put = (etcd: EtcdServer, key: string, text: string) =>
  etcd.ask('kv/put', { key: base64(key), value: base64(text) })
const remove = (etcd: EtcdServer, key: string) => etcd.ask('kv/deleterange', { key: base64(key) })
async function textOf(etcd: EtcdServer, key: string): Promise<string> {
  const { kvs = [] } = await etcd.ask('kv/range', { key: base64(key) })
  const [pair] = kvs as unknown as { value: string }[]
  return Buffer.from(pair?.value ?? '', 'base64').toString()
}

const MACS = ['52:54:00:00:00:01', '52:54:00:00:00:02']
const [SOUND = '', BROKEN = ''] = MACS

/** Two nodes, n1 of group g and n2 of group h. */
async function fill(daemon: Daemon): Promise<void> {
  await daemon.create('network', 'cluster', { network: '10.141.0.0/16' })
  for (const name of ['g', 'h'])
    await daemon.create('group', name, { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  for (const [i, macaddr] of MACS.entries())
    await daemon.create('node', `n${i + 1}`, {
      group: i === 0 ? 'g' : 'h',
      interfaces: [{ interface: 'BOOTIF', macaddress: macaddr }]
    })
}

/** Whether it knows whose MAC that is. */
async function knows(daemon: Daemon, mac: string, node: string): Promise<boolean> {
  const { text } = await daemon.client().get(`/boot/search/mac/${mac}`)
  return text.includes(node)
}

const reasonOf = async (daemon: Daemon): Promise<string> => {
  const { status, body } = await daemon.request('GET', '/monitor/service/svcd')
  return `${status} ${JSON.stringify(body)}`
}
const primary = async (daemon: Daemon) => (await daemon.request('GET', '/monitor/primary')).status

// A tree and a first start, which makes keys, cost more than a test: one controller alone and one pair do for
// all of them. After a test they have at least the objects of `fill`.
const etcd = await startEtcd(t)
const daemon = await controllerOn(t, etcd)
const set = ['store.medium=etcd', `store.endpoints=${etcd.url}`]
await daemon.start()
await fill(daemon)
await daemon.stop()

t.test(
  'a start on objects that break rules boots what is sound, and goes on once that is mended',
  async t => {
    const group = await textOf(etcd, '/svcd/objects/group/h')
    const layout = await textOf(etcd, '/svcd/objects/layout/version')
    const head = await textOf(etcd, '/svcd/head')
    const damages: readonly (readonly [
      what: string,
      damage: () => unknown,
      mend: () => unknown,
      told: RegExp
    ])[] = [
      [
        'a group that is gone',
        () => remove(etcd, '/svcd/objects/group/h'),
        () => put(etcd, '/svcd/objects/group/h', group),
        /objects\/node\/n2: .*group.*h.*etcdctl --endpoints=\S+ put \/svcd\/objects\/node\/n2 -- \\?"\$\(cat FILE\)\\?".*etcdctl \S+ del \/svcd\/objects\/node\/n2/
      ],
      [
        'what does not parse',
        () => put(etcd, '/svcd/objects/group/h', '{"na'),
        () => put(etcd, '/svcd/objects/group/h', group),
        /objects\/group\/h.*: .*JSON.*del \/svcd\/objects\/group\/h/
      ],
      [
        'a name for a shell',
        () => put(etcd, "/svcd/objects/node/x';reboot", '{'),
        () => remove(etcd, "/svcd/objects/node/x';reboot"),
        /del '\/svcd\/objects\/node\/x'\\+'';reboot'/
      ],
      [
        'a layout that does not parse',
        () => put(etcd, '/svcd/objects/layout/version', '{'),
        () => put(etcd, '/svcd/objects/layout/version', layout),
        /objects\/layout\/version/
      ],
      [
        'a layout that is gone',
        () => remove(etcd, '/svcd/objects/layout/version'),
        () => put(etcd, '/svcd/objects/layout/version', layout),
        /objects\/layout\/version: it is gone/
      ],
      [
        'a head that is none',
        () => put(etcd, '/svcd/head', 'x'),
        () => put(etcd, '/svcd/head', head),
        /\/svcd\/head: it is no number of a commit.*etcdctl/
      ]
    ]
    for (const [what, damage, mend, told] of damages) {
      await damage()
      const checked = await svcd(daemon, set, 'check')
      t.match(checked, { code: 1, text: told }, `${what}: check says it`)
      const archive = daemon.path('backup.tar')
      const backed = await svcd(daemon, set, 'backup', archive)
      t.match(backed, { code: 1, text: told }, `${what}: backup says it`)
      await daemon.start()
      t.ok(await knows(daemon, SOUND, 'n1'), `${what}: a sound node boots`)
      if (/group|parse/.test(what) && !what.includes('layout'))
        t.notOk(await knows(daemon, BROKEN, 'n2'), 'one that is not whole does not')
      t.match(await reasonOf(daemon), told, `${what}: health says it`)
      t.match(daemon.log(), told, `${what}: the log says it`)
      t.equal(await primary(daemon), 503)
      t.match(
        await daemon.request('POST', '/config/node/n1', { config: { node: { n1: { comment: 'x' } } } }),
        {
          status: 503
        }
      )
      await mend()
      await until(
        async () => (await primary(daemon)) === 200,
        () => daemon.log()
      )
      t.ok(await knows(daemon, BROKEN, 'n2'), `${what}: mended, it boots`)
      t.match(await reasonOf(daemon), /^200 /)
      await daemon.stop()
    }
  }
)

await t.test('an etcd without room: nobody is primary, and a start boots machines all the same', async t => {
  const { header } = await etcd.ask('maintenance/status', {})
  const { member_id: memberID } = header as unknown as { member_id: string }
  const alarm = (action: 'ACTIVATE' | 'DEACTIVATE') =>
    etcd.ask('maintenance/alarm', { action, memberID, alarm: 'NOSPACE' })
  await daemon.start()
  t.equal(await primary(daemon), 200)
  const check = () => svcd(daemon, set, 'check')
  t.match(await check(), { code: 0, text: /^ok$/m })
  await alarm('ACTIVATE')
  t.match(await check(), {
    code: 1,
    text: /\[store\] endpoints: nothing can be written: http:\S+ has no room; make room: type etcdctl/
  })
  await until(async () => (await primary(daemon)) === 503)
  t.match(await reasonOf(daemon), /^503 .*space exceeded; make room: type etcdctl/)
  await daemon.kill()
  await daemon.start()
  t.ok(await knows(daemon, SOUND, 'n1'), 'a start boots machines')
  t.equal(await primary(daemon), 503)
  await until(async () => /^503 .*space exceeded; make room: type etcdctl/.test(await reasonOf(daemon)))
  await alarm('DEACTIVATE')
  await until(
    async () => (await primary(daemon)) === 200,
    () => daemon.log()
  )
  await daemon.create('node', 'n3', { group: 'g' })
  await daemon.kill()
})

const [first, second, shared] = await twoControllers(t)
await fill(first)

t.test(
  'a node that an older snapshot does not have reports nothing; both controllers agree with etcd',
  async t => {
    const snapshot = await shared.save()
    await first.create('node', 'late', { group: 'g' })
    const report = (node: string) => ({ monitor: { status: { [node]: { state: 'installer.x' } } } })
    t.equal((await first.request('POST', '/monitor/node/late', report('late'))).status, 204)
    await shared.restore(snapshot)
    const answers = new Set<number>()
    const revisions = async () => {
      const told = await Promise.all([first, second].map(each => each.request('GET', '/version')))
      return told.map(({ body }) => (body as { controller: { revision: number } }).controller.revision)
    }
    await until(
      async () => {
        answers.add((await first.request('POST', '/monitor/node/late', report('late'))).status)
        const [one, other] = await revisions()
        const last = Number((await textOf(shared, '/svcd/head')).split(' ')[0])
        return answers.has(404) && one === last && other === last
      },
      () => [[...answers], first.log()]
    )
    t.notOk(answers.has(204), 'nothing is acknowledged for it')
    await until(async () => (await isPrimary(first)) || (await isPrimary(second)))
    for (const daemon of [first, second])
      await until(async () => (await daemon.request('GET', '/config/node/late')).status === 404)
    t.equal((await first.request('GET', '/config/node/n1')).status, 200)
  }
)

t.test(
  'what is removed below the prefix under running controllers: machines boot, and nothing is acknowledged',
  async t => {
    const told = /^503 .*\/svcd\/ holds nothing any more: .*svcd restore FILE/
    const isLed = async () => (await primary(first)) === 200 || (await primary(second)) === 200
    for (const prefix of ['/svcd/', '/svcd/objects/']) {
      // Both have left behind what an earlier restore did to them, and either may lead.
      await until(isLed)
      for (const daemon of [first, second])
        await until(async () => (await knows(daemon, SOUND, 'n1')) && !told.test(await reasonOf(daemon)))
      const snapshot = await shared.save()
      await shared.ask('kv/deleterange', {
        key: base64(prefix),
        range_end: base64(`${prefix.slice(0, -1)}0`)
      })
      // A follower would forward a report to a leader that does not know it yet, and may answer 502.
      for (const daemon of [first, second])
        await until(
          async () => told.test(await reasonOf(daemon)),
          () => daemon.log()
        )
      for (const daemon of [first, second]) {
        t.ok(await knows(daemon, SOUND, 'n1'), `${prefix}: machines boot from memory`)
        t.equal(await primary(daemon), 503)
        const report = { monitor: { status: { n1: { state: 'installer.x' } } } }
        // A report that is under way to the other one while that ceases to lead is answered with 502.
        const answers = new Set<number>()
        await until(async () => {
          const { status } = await daemon.request('POST', '/monitor/node/n1', report)
          answers.add(status)
          return status !== 502
        })
        t.strictSame(
          [...answers].filter(status => status !== 502),
          [503],
          'nothing is acknowledged'
        )
      }
      await shared.restore(snapshot)
      await until(isLed, () => [first.log(), second.log()])
      for (const daemon of [first, second])
        await until(async () => (await daemon.request('GET', '/config/node/n2')).status === 200)
    }
  }
)
