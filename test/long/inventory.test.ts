import { chmod, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { Inventory } from '../../lib/inventory/facts.js'
import { dimm, withHandle } from '../node/machine-tree.js'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions } from './debian-image.js'

// Virtual machines with different disks, memory and cards, which report them at the installation and when
// their system is up; one has a DIMM fewer at its second boot (rules 6.16). Some five minutes.

const macs = ['52:54:00:14:09:01', '52:54:00:14:09:02']

/** Ends the boot's report when the inventory was sent. */
const waits = `#!/bin/sh
for _ in $(seq 120); do
  systemctl is-active -q svc-inventory || break
  sleep 1
done
echo "REPORT inventory $(systemctl show -P Result svc-inventory) $(stat -c '%a' /etc/svc/inventory.conf)"
# The daily timer, a day early.
first=$(systemctl show -P InvocationID svc-inventory)
cd /run/systemd/system && mkdir -p svc-inventory.timer.d
printf '[Timer]\\nOnActiveSec=1s\\nRandomizedDelaySec=0\\nAccuracySec=1s\\n' >svc-inventory.timer.d/soon.conf
systemctl daemon-reload
systemctl restart svc-inventory.timer
for _ in $(seq 120); do
  again=$(systemctl show -P InvocationID svc-inventory)
  [ -z "$again" ] || [ "$again" = "$first" ] || systemctl is-active -q svc-inventory || break
  sleep 1
done
[ "$again" = "$first" ] && again=never || again=again
echo "REPORT timer $(systemctl is-enabled svc-inventory.timer) $again $(systemctl show -P Result svc-inventory)"
`

t.test('virtual machines report what they are made of', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const network = await startNetwork(macs.map((mac, i) => ({ mac, ipaddress: `10.141.0.1${i + 1}` })))
  t.teardown(() => network.close())
  const { enter } = network
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter, set: [] })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  const image = await debianImage({
    ...{ tool: 'initramfs-tools', files: join(directory, 'files'), tree: join(directory, 'tree') },
    async prepare(tree) {
      const file = join(tree, 'usr/local/sbin/svcd-report-more')
      await writeFile(file, waits)
      await chmod(file, 0o755)
    }
  })
  await controller.create('osimage', 'debian', {
    ...image,
    distribution: 'debian',
    kerneloptions: systemOptions
  })
  for (const [i, macaddr] of macs.entries()) {
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.1${i + 1}` }]
    await controller.create('node', `node00${i + 1}`, { osimage: 'debian', macaddr, interfaces })
  }
  const file = async (name: string, bytes: Buffer | number) => {
    const path = join(directory, name)
    await writeFile(path, typeof bytes === 'number' ? '' : bytes)
    if (typeof bytes === 'number') await truncate(path, bytes)
    return path
  }
  /** The arguments for this many filled DIMMs of eight. */
  const memory = async (filled: number) => {
    const args = [
      '-smbios',
      'type=1,manufacturer=Some Maker,product=Big "Box",serial=S-1,uuid=4c4c4544-0000-4000-8000-000000000001'
    ]
    for (let i = 0; i < 8; i++) {
      const slot = {
        slot: `DIMM_A${i}`,
        size: i < filled ? 256 : 0,
        maker: 'Maker',
        serial: `M${i}`,
        part: 'P'
      }
      args.push('-smbios', `file=${await file(`dimm${filled}-${i}`, withHandle(dimm(slot), 0x1100 + i))}`)
    }
    return args
  }
  const monitor = async (path: string) =>
    (await controller.request('GET', `/monitor/${path}`)).body as {
      monitor: { inventory: Record<string, Inventory>; audit: { after?: { hardware?: string } }[] }
    }
  const inventoryOf = async (node: string): Promise<Inventory> =>
    (await monitor(`inventory/${node}`)).monitor.inventory[node] ?? {}
  const booted = async (n: number, devices: readonly string[]) => {
    let early: Promise<Inventory> | undefined
    const run = await runMachine({
      ...{
        name: `node00${n}`,
        mac: macs[n - 1] as string,
        network: { tap: network.tap(macs[n - 1] as string) },
        enter
      },
      ...{ memoryMiB: 2048, timeLimitMs: 900_000, devices, until: /REPORT done .*\n/ },
      onLine: line => {
        if (/svc: step download/.test(line)) early = inventoryOf(`node00${n}`).catch(() => ({}))
      }
    })
    t.equal(reported(run.console, 'inventory'), 'success 600', 'the unit', { console: tail(run.console) })
    t.equal(reported(run.console, 'timer'), 'enabled again success', 'the daily timer')
    return { early: await early, late: await inventoryOf(`node00${n}`) }
  }
  const nvme = await file('nvme', (5e8 / 512) * 512)
  const disk = await file('disk', 2 ** 28)
  const cards = [
    ...[
      '-smp',
      '2,sockets=2',
      '-drive',
      `id=n,if=none,format=raw,file=${nvme}`,
      '-device',
      'nvme,drive=n,serial=NV"1'
    ],
    ...['-drive', `id=d,if=none,format=raw,file=${disk}`, '-device', 'virtio-blk-pci,drive=d,serial=VD1'],
    ...['-device', 'secondary-vga', '-device', 'virtio-net-pci,mac=52:54:00:14:09:99,romfile=']
  ]
  const first = await booted(1, [...cards, ...(await memory(8))])
  t.match(first.early, { source: 'installation', system: { product: 'Big "Box"' } })
  t.match(first.late, {
    source: 'boot',
    system: { maker: 'Some Maker', product: 'Big "Box"', serial: 'S-1' },
    firmware: { mode: 'bios' },
    cpu: { sockets: 2, cores: 2, threads: 2 },
    disks: [
      { name: 'nvme0n1', serial: 'NV"1', transport: 'nvme' },
      { name: 'vda', size: 2 ** 28, serial: 'VD1', transport: 'virtio' }
    ]
  })
  t.strictSame(
    first.late.memory?.slots?.map(({ slot, size }) => [slot, size]),
    Array.from({ length: 8 }, (_, i) => [`DIMM_A${i}`, 2 ** 28])
  )
  t.strictSame(first.late.interfaces?.map(({ mac, driver }) => [mac, driver]).sort(), [
    [macs[0], 'virtio_net'],
    ['52:54:00:14:09:99', 'virtio_net']
  ])
  t.ok(
    first.late.pci?.some(card => card.class === '0380' && card.vendor === '1234'),
    'its graphics card'
  )
  await booted(1, [...cards, ...(await memory(7))])
  const { audit } = (await monitor('audit?by=machines')).monitor
  const told = audit.flatMap(line => line.after?.hardware ?? [])
  t.strictSame(told, ['node001: 7 of 8 DIMMs, 8 at the last boot: DIMM_A7 is empty'])
  // A plain machine: what qemu says of itself.
  const second = await booted(2, [])
  t.match(second.late, { cpu: { sockets: 1, threads: 1 }, disks: [], interfaces: [{ mac: macs[1] }] })
  t.comment(JSON.stringify(second.late))
})
