import { rmSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { isPrimary } from '../../support/controllers.js'
import { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

// What a controller lacks, another one may have (rules 4.28).

const mac = '52:54:00:00:00:01'

t.test('a boot is not refused for a missing file while there are other controllers', async t => {
  const etcd = await startEtcd(t)
  const listens = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`]
  const urls = listens.map(listen => `http://${listen}`)
  const [first, second] = listens.map((listen, i) => {
    const set = ['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s', `controller.name=c${i}`]
    const inOrder = i === 0 ? urls : urls.toReversed()
    const daemon = new Daemon({
      ...{ directory: scratch(t), listen },
      set: [...set, `http.url=${inOrder.join(', ')}`]
    })
    t.teardown(() => daemon.kill())
    return daemon
  }) as [Daemon, Daemon]
  await first.start()
  await until(() => isPrimary(first))
  await first.create('network', 'cluster', { network: '10.141.0.0/16' })
  const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
  await first.create('osimage', 'compute', files)
  await first.create('node', 'node001', {
    ...{ osimage: 'compute', macaddr: mac },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' }]
  })
  const script = async () => (await first.client().get(`/boot/search/mac/${mac}`)).text
  const refused = /svcd: the kernel .* of OS image compute, vmlinuz, is missing\n/
  t.match(await script(), refused, 'nobody else is there')
  t.match((await first.monitor('node001')).reason, /vmlinuz, is missing$/)

  giveKeys(first, second)
  await second.start()
  // It has the kernel, and cannot give it so far: somebody seems to write it.
  const there = [...Object.values(files)].map(name => second.path('files', name))
  const writes = () => {
    for (const file of there) writeFileSync(file, 'x')
  }
  writes()
  let writing = setInterval(writes, 1000)
  t.teardown(() => clearInterval(writing))
  await until(async () => !/cannot be booted/.test(await script()))
  for (const url of urls)
    t.match(
      await script(),
      `\nimgfetch --timeout 120000 --name kernel ${url}/boot/vmlinuz && goto kernel_there ||\n`
    )
  const lacking =
    'vmlinuz, was missing on controller c0 when the machine asked last: another controller had to send it'
  t.ok((await first.monitor('node001')).reason?.endsWith(lacking), 'the reason says so')
  t.equal(first.log().split(lacking).length, 2, 'and the log does once')

  clearInterval(writing)
  for (const file of there) rmSync(file)
  await until(async () => refused.test(await script()))
  t.match((await first.monitor('node001')).reason, /vmlinuz, is missing$/, 'nobody has it')
  t.match(await script(), /svcd: node node001: this machine cannot be booted/)
  // Still not given, however long it takes until the first one asks again.
  writes()
  writing = setInterval(writes, 1000)
  await until(async () => !/cannot be booted/.test(await script()))

  await second.kill()
  await until(async () => refused.test(await script()))
  t.match((await first.monitor('node001')).reason, /vmlinuz, is missing$/)
})
