import { fileURLToPath } from 'node:url'
import t from 'tap'
import { checkAll } from '../../lib/cli/checks.js'
import { loadConfig } from '../../lib/config/load.js'
import { Controller } from '../support/controller.js'

const shippedIni = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))

// rules 3.17, 7.7
t.test('names that lead nowhere are taken, and svcd check warns of them', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/switch/sw1', {})
  await c.post('/config/node/n1', { group: 'compute', switch: 'sw1' })
  const network = 'cluster'
  await c.post('/config/node/n1', { interfaces: [{ interface: 'ib0', network }] })
  const table: [path: string, body: object, warning: string][] = [
    [
      '/config/node/n1',
      { interfaces: [{ interface: 'BOOTF', network }] },
      'node n1: its group compute has no interface BOOTF (did you mean "BOOTIF"?)'
    ],
    [
      '/config/node/n1',
      { provision_interface: 'BOTIF' },
      'node n1: provision_interface is BOTIF, which is none of its interfaces: BOOTIF, ib0, BOOTF'
    ],
    ['/config/node/n1', { switch: 'sw2' }, 'node n1: there is no switch sw2, only sw1'],
    [
      '/config/group/compute',
      { provision_interface: 'eth7' },
      'group compute: provision_interface is eth7, which is none of its interfaces: BOOTIF'
    ],
    [
      '/config/network/inner',
      { network: '10.141.7.0/24' },
      'network inner: its 10.141.7.0/24 overlaps with cluster (10.141.0.0/16): the longest prefix answers for an address'
    ],
    [
      '/config/node/n1',
      { interfaces: [{ interface: 'ib0', options: 'mtu=9000 vlna=5 bond' }] },
      'node n1: interface ib0: its option "vlna=5" is not known (did you mean "vlan"?)'
    ],
    [
      '/config/node/n1',
      { interfaces: [{ interface: 'BOOTF', options: 'mtu=9000 dhcp=no on=ib0' }] },
      'node n1: interface BOOTF: its option "mtu=9000" is not used: beside on= there is no other'
    ],
    [
      '/config/group/compute',
      { interfaces: [{ interface: 'BOOTIF', options: 'mode' }] },
      'group compute: interface BOOTIF: its option "mode" has no value'
    ],
    [
      '/config/group/compute',
      { roles: 'nowhere' },
      'group compute has the role nowhere, and there is no file'
    ],
    [
      '/config/osimage/compute',
      { distribution: 'ubunto' },
      'OS image compute: the distribution ubunto is not known (did you mean "ubuntu"?): which network files a node gets is guessed from the programs in the image'
    ]
  ]
  for (const [path, body, warning] of table) {
    const { status, headers } = await c.post(path, body)
    t.ok(status < 300, `${path} ${status}`)
    const sentence = warning.replace(/^.*?(?:: | has the role )/, '')
    t.ok(String(headers['x-svcd-warning']).includes(sentence), `${path}: ${headers['x-svcd-warning']}`)
    t.notMatch(headers['x-svcd-warning'], /^it /, 'the object has its name')
    t.equal((await c.post(path, body)).headers['x-svcd-warning'], undefined, 'it was told')
  }
  const told = table.map(([, , warning]) => warning).sort()
  const loose = (lines: readonly string[]) =>
    lines.flatMap(line => told.filter(warning => line.includes(warning))).sort()
  t.strictSame(
    loose(c.log),
    told.filter(warning => warning.includes('role nowhere')),
    'the log does not repeat them, but for roles'
  )
  const { warnings } = await checkAll(loadConfig(shippedIni, c.overrides))
  t.strictSame(loose(warnings), told, 'svcd check')
  t.notOk(
    warnings.some(warning => warning.includes('ib0 (did')),
    'an interface of the node alone'
  )
})

t.test('of networks with the same prefix the warning tells which one answers', async t => {
  const c = await Controller.start(t)
  const post = (name: string) => c.post(`/config/network/${name}`, { network: '10.150.0.0/16' })
  await post('b')
  t.match(
    (await post('a')).headers['x-svcd-warning'],
    /its 10\.150\.0\.0\/16 overlaps with b \(10\.150\.0\.0\/16\): the network whose name comes first answers/
  )
})
