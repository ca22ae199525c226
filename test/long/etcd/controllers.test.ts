// What controllers tell one another of themselves.
import t from 'tap'
import { EtcdMedium } from '../../../lib/store/etcd/medium.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

const controller = (name: string, more = {}) => ({
  ...{ name, host: `${name}.example.org`, address: '10.141.0.1', port: 7050, ini: '/etc/svcd/svcd.ini' },
  ...more
})

// rules 11.15
t.test('machines that were cloned have one host name: their one name is told all the same', async t => {
  const etcd = await startEtcd(t)
  const lines: string[] = []
  for (const address of ['10.141.0.1', '10.141.0.2']) {
    const log = (_level: string, line: string) => lines.push(line)
    const medium = new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1, log })
    medium.join(controller('clone', { address }), Date.now)
    t.teardown(() => medium.close())
  }
  await until(() => lines.some(line => /10\.141\.0\.1 port 7050 has the name clone too/.test(line)))
})

// rules 11.15
t.test('each tells where it is reached; one of a release that tells no URL is listed without', async t => {
  const etcd = await startEtcd(t)
  const said = {
    old: controller('old'),
    odd: controller('odd', { url: 'file:///etc/passwd' }),
    none: controller('none', { url: 7 })
  }
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  for (const [key, value] of Object.entries(said))
    await etcd.ask('kv/put', {
      key: base64(`/svcd/controllers/${key}`),
      value: base64(JSON.stringify(value))
    })
  const open = (name: string, url: string) => {
    const medium = new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 })
    medium.join(controller(name, { url }), Date.now)
    t.teardown(() => medium.close())
    return medium
  }
  const one = open('one', 'http://10.141.0.1:7050')
  const two = open('two', 'https://[fd00::2]:7050')
  await until(() => one.others.length === 4 && two.others.length === 4)
  const byName = (medium: EtcdMedium) => Object.fromEntries(medium.others.map(other => [other.name, other]))
  t.strictSame(
    one.others.map(({ name }) => name),
    ['none', 'odd', 'old', 'two'],
    'in natural order'
  )
  const without = { old: said.old, odd: controller('odd'), none: controller('none') }
  t.strictSame(byName(one), { ...without, two: controller('two', { url: 'https://[fd00::2]:7050' }) })
  t.strictSame(byName(two), { ...without, one: controller('one', { url: 'http://10.141.0.1:7050' }) })
})

// rules 11.15
t.test('each tells digests of its ini; what is none, or too many, is left out', async t => {
  const etcd = await startEtcd(t)
  const digest = '0123456789abcdef'
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, digest]))
  const said = {
    ...{ list: [digest], text: digest, none: {}, short: { '[boot]': digest.slice(1) } },
    ...{ upper: { '[boot]': digest.toUpperCase() }, deep: { '[boot]': { digest } } },
    ...{ line: { '[boot]\n': digest }, one: { '[boot]': digest, '[dns]': 7 }, many: many(21) }
  }
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  for (const [name, digests] of Object.entries({ ...said, most: many(20) }))
    await etcd.ask('kv/put', {
      key: base64(`/svcd/controllers/${name}`),
      value: base64(JSON.stringify(controller(name, { digests })))
    })
  const open = (name: string, more = {}) => {
    const medium = new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 })
    medium.join(controller(name, more), Date.now)
    t.teardown(() => medium.close())
    return medium
  }
  const first = open('first')
  open('second', { digests: { '[boot]': digest } })
  await until(() => first.others.length === Object.keys(said).length + 2)
  const told = first.others.filter(({ digests }) => digests !== undefined)
  t.strictSame(told, [
    controller('most', { digests: many(20) }),
    controller('second', { digests: { '[boot]': digest } })
  ])
})

// rules 9.15
t.test(
  'each announces its hidden directories as they are; what is none, or too many, is left out',
  async t => {
    const etcd = await startEtcd(t)
    const base64 = (text: string) => Buffer.from(text).toString('base64')
    const said = { text: 'copy 1', numbers: [1], line: ['copy 1\n'], many: Array(101).fill('copy 1') }
    for (const [name, trees] of Object.entries(said))
      await etcd.ask('kv/put', {
        key: base64(`/svcd/controllers/${name}`),
        value: base64(JSON.stringify(controller(name, { trees })))
      })
    const open = (name: string, trees?: () => string[]) => {
      const medium = new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 })
      medium.join(controller(name), Date.now, trees)
      t.teardown(() => medium.close())
      return medium
    }
    const first = open('first')
    let hidden = ['copy 1']
    open('second', () => hidden)
    const treesOf = () => first.others.flatMap(({ name, trees }) => (trees ? [[name, trees]] : []))
    await until(() => first.others.length === Object.keys(said).length + 1)
    t.strictSame(treesOf(), [['second', ['copy 1']]])
    hidden = Array.from({ length: 150 }, (_, i) => `copy ${i}`)
    await until(() => (first.others.find(({ name }) => name === 'second')?.trees ?? []).length === 100)
    hidden = []
    await until(() => treesOf().length === 0)
  }
)

// rules 11.15
t.test('each tells its clock, and hears how far those of others are ahead, also after a jump', async t => {
  const etcd = await startEtcd(t)
  const offsets: Record<string, number> = { one: 0, two: 90_000, far: -4_000_000 }
  const [one, two] = Object.keys(offsets).map(name => {
    const medium = new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 60 })
    medium.join(controller(name), () => Date.now() + (offsets[name] as number))
    t.teardown(() => medium.close())
    return medium
  }) as [EtcdMedium, EtcdMedium]
  const ahead = (medium: EtcdMedium, name: string) =>
    medium.others.find(other => other.name === name)?.aheadMs
  const hears = (medium: EtcdMedium, name: string, ms: number) =>
    until(
      () => Math.abs((ahead(medium, name) ?? Number.NaN) - ms) < 5000,
      () => medium.others
    )
  await Promise.all([hears(one, 'two', 90_000), hears(two, 'one', -90_000), hears(one, 'far', -4_000_000)])
  offsets.two = -20_000
  await Promise.all([hears(one, 'two', -20_000), hears(two, 'one', 20_000)])
  const { controllers } = await one.site(Date.now() + 1000)
  const found = Object.fromEntries(controllers.map(({ name, aheadMs = Number.NaN }) => [name, aheadMs]))
  t.ok(Math.abs((found.two ?? 0) + 21_000) < 10_000, 'and so does who only looks')
})

// rules 11.15
t.test('two whose ini differs where it must not say so, both, until it is mended', async t => {
  const etcd = await startEtcd(t)
  const ports = [await freePort(), await freePort()]
  const [one, two] = ports.map(port => `http://127.0.0.1:${port}`)
  const images = `image.directory=${scratch(t)}`
  const on = (i: number, ...more: string[]) => {
    const set = [
      ...['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s', `controller.name=c${i}`],
      ...[images, `store.url=http://127.0.0.1:${ports[i - 1]}`, ...more]
    ]
    const daemon = new Daemon({ directory: scratch(t), listen: `127.0.0.1:${ports[i - 1]}`, set })
    t.teardown(() => daemon.kill())
    return daemon
  }
  const c1 = on(1, `http.url=${one}, ${two}`)
  await c1.start()
  await until(() => isPrimary(c1))
  // The admin forgot [http] url, and gave another password of root.
  const c2 = on(2, 'kickstart.rootpw=$6$saltsalt$abcdefghijklmnop')
  giveKeys(c1, c2)
  await c2.start()
  const text = (words: string, other: string) =>
    `${words} of this controller is not that of controller ${other}: give both the same`
  const differences = (other: string) => [text('[http] url', other), text('[kickstart]', other)]
  const stateOf = async (daemon: Daemon) => {
    const { body } = await daemon.request('GET', '/monitor/service/svcd')
    return (body as { monitor: { service: { svcd: { status: string; reason: string } } } }).monitor.service
      .svcd
  }
  const isWell = async (daemon: Daemon) => (await stateOf(daemon)).status === 'ok'
  const warned = (daemon: Daemon) =>
    daemon.log().match(/(?<=^\S+ warn ).* of this controller is not that of .*$/gm) ?? []
  for (const [daemon, other] of [
    [c1, 'c2'],
    [c2, 'c1']
  ] as const) {
    await until(
      () => warned(daemon).length > 1,
      () => daemon.log()
    )
    t.match(await stateOf(daemon), { status: 'failed', reason: differences(other).join('; ') })
    t.strictSame(warned(daemon), differences(other), 'once')
  }
  await c2.stop()
  await until(() => isWell(c1), 'the other one to have left')
  const mended = on(2, `http.url=${two}, ${one}`)
  giveKeys(c1, mended)
  await mended.start()
  await until(async () => {
    const { body } = await c1.request('GET', '/config/cluster')
    return JSON.stringify(body).includes('"c2"')
  })
  t.ok(await isWell(c1), 'mended')
  await until(() => isWell(mended))
  t.strictSame(warned(mended), [])
  t.strictSame(warned(c1), differences('c2'))
})

// rules 3.7
t.test(
  'a new node gets the address of no controller, and what one writes holds where another one does',
  async t => {
    const etcd = await startEtcd(t)
    const at = (i: number) =>
      controllerOn(t, etcd, `controller.name=c${i}`, `controller.address=10.141.0.${i}`)
    const [one, two] = [await at(1), await at(2)]
    await one.start()
    await until(() => isPrimary(one))
    giveKeys(one, two)
    await two.start()
    await one.create('network', 'cluster', { network: '10.141.0.0/16' })
    const next = async (daemon: Daemon) => {
      const { body } = await daemon.request('GET', '/config/network/cluster/_nextfreeip')
      return (body as { nextip: string }).nextip
    }
    await until(async () => (await next(one)) === '10.141.0.3', 'the addresses of both to be theirs')
    await one.kill()
    await until(() => isPrimary(two))
    t.equal(await next(two), '10.141.0.3', 'also when the other one is gone')
    const claimed = await two.request('POST', '/config/otherdev/pdu', {
      network: 'cluster',
      ipaddress: '10.141.0.1'
    })
    t.match(claimed, {
      status: 400,
      body: { message: 'other device pdu: 10.141.0.1 belongs to controller c1' }
    })
  }
)
