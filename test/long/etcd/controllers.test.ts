// What controllers tell one another of themselves.
import t from 'tap'
import { Etcd } from '../../../lib/store/etcd/medium.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
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
    const medium = new Etcd({ endpoints: [etcd.url], ttlSeconds: 1, log })
    medium.join(controller('clone', { address }))
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
    const medium = new Etcd({ endpoints: [etcd.url], ttlSeconds: 1 })
    medium.join(controller(name, { url }))
    t.teardown(() => medium.close())
    return medium
  }
  const one = open('one', 'http://10.141.0.1:7050')
  const two = open('two', 'https://[fd00::2]:7050')
  await until(() => one.others.length === 4 && two.others.length === 4)
  const byName = (medium: Etcd) => Object.fromEntries(medium.others.map(other => [other.name, other]))
  t.strictSame(
    one.others.map(({ name }) => name),
    ['none', 'odd', 'old', 'two'],
    'in natural order'
  )
  const without = { old: said.old, odd: controller('odd'), none: controller('none') }
  t.strictSame(byName(one), { ...without, two: controller('two', { url: 'https://[fd00::2]:7050' }) })
  t.strictSame(byName(two), { ...without, one: controller('one', { url: 'http://10.141.0.1:7050' }) })
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
