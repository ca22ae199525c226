import t from 'tap'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { requirePrograms } from '../support/programs.js'
import { until } from '../support/until.js'
import { emulated, plain } from '../support/virtual-machine.js'

// rules 4.37, 4.38: the real iPXE of qemu's cards (Debian's is of 2019) tells what it is.

const uuid = '4c4c4544-0033-5610-8052-b4c04f4d3132'

/** A machine with two cards that boots from the first one, and these entries of DMI. */
function machine(port: number, mac: string, second: string, dmi: string) {
  requirePrograms('qemu-system-x86_64')
  return start(
    'qemu-system-x86_64',
    [
      ...[...emulated, '-m', '256', '-nodefaults', '-no-reboot', '-display', 'none'],
      ...['-machine', 'graphics=off', '-serial', 'stdio', '-smbios', dmi, '-smbios', 'type=3,asset=A 0017'],
      ...['-netdev', `user,id=n0,bootfile=http://10.0.2.2:${port}/boot`],
      ...['-device', `virtio-net-pci,netdev=n0,mac=${mac},bootindex=1`],
      ...['-netdev', 'user,id=n1', '-device', `virtio-net-pci,netdev=n1,mac=${second}`]
    ],
    { input: '' }
  )
}

t.test(
  'a machine is listed with all that its firmware knows, and boots as the node that it becomes',
  async t => {
    const port = await freePort()
    const url = `http://10.0.2.2:${port}`
    const c = await Controller.start(t, `http.listen=127.0.0.1:${port}`, `http.url=${url}`)
    await c.cluster()
    const dmi = `type=1,manufacturer=Dell & "Co" <Inc.> 100%,product=R640 #1,serial= =S/N? 12;3,uuid=${uuid}`
    const vm = machine(port, '52:54:00:aa:00:01', '52:54:00:aa:00:02', dmi)
    t.teardown(() => vm.kill())
    const list = async () => (await c.get('/monitor/unknown')).body.monitor.unknown
    await until(async () => '52:54:00:aa:00:01' in (await list()))
    const shown = (await list())['52:54:00:aa:00:01']
    t.comment(JSON.stringify(shown))
    t.match(shown, {
      uuid,
      macs: ['52:54:00:aa:00:01', '52:54:00:aa:00:02'],
      asset: 'A 0017',
      product: 'R640 #1'
    })
    t.match(shown.serial, /^=S\/N\? 12/)
    t.match(shown.maker, /^Dell/)
    await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:aa:00:01' })
    await until(() => /booting node node001/.test(plain(vm.output())))
    t.strictSame(await list(), {})
  }
)

t.test('by its serial number it is its node at the first request', async t => {
  const port = await freePort()
  const c = await Controller.start(
    t,
    ...[`http.listen=127.0.0.1:${port}`, `http.url=http://10.0.2.2:${port}`, 'boot.by_serial=yes']
  )
  await c.cluster()
  await c.post('/config/node/node007', { group: 'compute', serial: 'CZ20260107' })
  const vm = machine(port, '52:54:00:aa:00:07', '52:54:00:aa:00:08', 'type=1,serial=CZ20260107')
  t.teardown(() => vm.kill())
  await until(() => /booting node node007/.test(plain(vm.output())))
  t.notMatch(plain(vm.output()), /is unknown/)
})
