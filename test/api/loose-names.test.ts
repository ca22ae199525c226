import { fileURLToPath } from 'node:url'
import t from 'tap'
import { checkAll } from '../../lib/check.js'
import { loadConfig } from '../../lib/config/load.js'
import { Controller } from '../support/controller.js'

const shippedIni = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))

// rules 3.17, 7.7
t.test('names that lead nowhere are taken, and warned of in the log and by svcd check', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/switch/sw1', {})
  const told = async (path: string, body: object) => {
    const from = c.log.length
    const { status, text } = await c.post(path, body)
    t.ok(status === 201 || status === 204 || status === 200, `${path} ${status} ${text}`)
    return c.log
      .slice(from)
      .filter(line => line.includes('warn'))
      .map(line => line.replace(/^.*?warn(?:ing)?:? */, '').trim())
  }
  t.strictSame(await told('/config/node/n1', { group: 'compute', switch: 'sw1' }), [])
  const network = 'cluster'
  const table: [path: string, body: object, warning: string][] = [
    [
      '/config/node/n1',
      { interfaces: [{ interface: 'BOOTF', network }] },
      'node n1: its group compute has no interface BOOTF, only BOOTIF'
    ],
    [
      '/config/node/n1',
      { provision_interface: 'BOTIF' },
      'node n1: provision_interface is BOTIF, and there are only BOOTIF, BOOTF'
    ],
    ['/config/node/n1', { switch: 'sw2' }, 'node n1: there is no switch sw2, only sw1'],
    [
      '/config/group/compute',
      { provision_interface: 'eth7' },
      'group compute: provision_interface is eth7, and there are only BOOTIF'
    ],
    [
      '/config/network/inner',
      { network: '10.141.7.0/24' },
      'network inner: its 10.141.7.0/24 overlaps with cluster (10.141.0.0/16): the longest prefix answers for an address'
    ],
    [
      '/config/osimage/compute',
      { distribution: 'ubunto' },
      'OS image compute: the installation does not know the distribution ubunto: the network files are those of the programs in the image'
    ],
    [
      '/config/osimage/compute',
      { kernelfile: 'vmlinux' },
      'OS image compute: field "kernelfile": there is no file vmlinux in the files directory yet'
    ]
  ]
  for (const [path, body, warning] of table) {
    t.strictSame(await told(path, body), [warning], path)
    t.strictSame(await told(path, { ...body, comment: warning }), [], 'told once')
  }
  const { warnings } = await checkAll(loadConfig(shippedIni, c.overrides))
  for (const [path, , warning] of table.slice(0, -1)) t.ok(warnings.includes(warning), `${path}: ${warning}`)
})
