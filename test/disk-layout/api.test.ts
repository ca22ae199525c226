import t from 'tap'
import { layoutProblem, layoutWarnings } from '../../lib/disk-layout/check.js'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import type { DisklayoutDoc } from '../../lib/model/types/disklayout.js'
import { machine } from '../inventory/machines.js'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { shippedLayout, wholeLayout } from '../support/layout-script.js'
import { MemoryCluster } from '../support/memory-cluster.js'

const root = { name: 'root', size: 'rest', format: 'ext4', mount: '/' }
const system = (...partitions: object[]) => ({ disks: [{ name: 'system', partitions }] })
const disk = (fields: object) => ({ disks: [{ name: 'system', partitions: [root], ...fields }] })

// rules 4.39
t.test('each layout that is shipped can be made, and one with everything', async t => {
  const c = await Controller.start(t)
  for (const [name, fields] of [...Object.entries(shippedLayouts), ['whole', wholeLayout] as const]) {
    const { name: _, ...body } = { name, ...fields }
    const { status, body: answer } = await c.post(`/config/disklayout/${name}`, body)
    t.equal(status, 201, answer.message)
    t.match((await c.get(`/config/disklayout/${name}`)).body.config.disklayout[name], body)
  }
})

t.test('what is wrong with a layout is named', async t => {
  const c = await Controller.start(t)
  const group = { name: 'vg', volumes: [root] }
  const cases: readonly (readonly [object, RegExp])[] = [
    [{}, /^disk layout x: field "disks" is missing/],
    [
      disk({ min: '100' }),
      /^disk layout x: field "disks" disks system: field "min" must be a size with a unit|disks system: field "min" must be a size with a unit, such as 512M, 100G or 1\.5T, not "100"/
    ],
    [disk({ kind: 'ssd' }), /disks system: there is no field "kind" here/],
    [disk({ type: 'tape' }), /disks system: field "type" must be one of ssd, hdd, nvme, not "tape"/],
    [disk({ count: 33 }), /disks system: field "count" must be a number from 1 to 32, or "all", not 33/],
    [disk({ by_id: 'a b' }), /disks system: field "by_id" must be the name of a link/],
    [disk({ min: '2T', max: '1T' }), /disks system: field "max" is 1T, less than "min" 2T/],
    [disk({ count: 2 }), /disks system: partition root is on several disks: it needs a "raid" level/],
    [disk({ keep: true }), /partition root is kept: it needs a "format" and a "label"/],
    [system({ ...root, mount: '/data' }), /^disk layout x: field "mount": no file system has \/$/],
    [
      system(root, { ...root, name: 'b' }),
      /partition root: field "size": only the last partition gets the rest/
    ],
    [
      system({ ...root, size: '9G' }, { ...root, name: 'b' }),
      /field "mount": two partitions or volumes have \/$/
    ],
    [
      system({ ...root, size: '60%' }, { ...root, name: 'b', size: '50%', mount: '/b' }),
      /its partitions have 110 % in all/
    ],
    [system({ ...root, size: '0.5' }), /partition root: field "size" must be a size such as 512M/],
    [system({ ...root, mount: '/a/../b' }), /partition root: field "mount" must be an absolute path/],
    [system({ ...root, raid: 1 }), /partition root: field "raid": level 1 needs 2 disks: set "count"/],
    [system({ ...root, format: undefined }), /partition root: field "format" is missing/],
    [system({ ...root, secret: 'key' }), /partition root: field "secret": the system finds its key on "\/"/],
    [
      system({ ...root, tpm: true }),
      /partition root: field "tpm" needs a "secret", which is the recovery key/
    ],
    [
      system({ ...root, secret: 'key', tpm: true }),
      /field "tpm": \/ is sealed, and GRUB cannot read it: add a partition with "mount" \/boot/
    ],
    [
      system({ ...root, size: '9G' }, { ...root, name: 'b', mount: '/boot', secret: 'key', tpm: true }),
      /partition b: field "secret": the system finds its key on "\/"/
    ],
    [
      system(
        { ...root, size: '9G' },
        { ...root, size: '1G', name: 'b', mount: '/srv/b', secret: 'key', tpm: true },
        { ...root, name: 'c', mount: '/srv/c', secret: 'key' }
      ),
      /field "secret": c and a sealed one have key: give each its own/
    ],
    [system({ ...root, options: 'a b' }), /partition root: field "options" must be mount options/],
    [system({ name: 'a', use: 'efi', format: 'vfat' }, root), /field "format" does not go with "use"/],
    [
      system({ name: 'a', use: 'efi' }, { name: 'b', use: 'firmware' }, root),
      /two partitions are for the boot loader/
    ],
    [system({ ...root, format: 'xfs', label: 'thirteenchars' }), /field "label" is too long: xfs takes 12/],
    [system({ ...root, keep: true, label: 'r' }), /field "keep": \/ cannot be kept/],
    [system({ name: 'a', size: 'rest', volumegroup: 'vg' }), /there is no volume group vg: add it/],
    ...[
      '/proc',
      '/sys/x',
      '/dev',
      '/run',
      '/run/lock',
      '/svcrun',
      '/svctmp',
      '/etc',
      '/lib64',
      '/bin',
      '/var/run'
    ].map(
      mount =>
        [
          system({ ...root, size: '9G' }, { ...root, name: 'data', mount }),
          new RegExp(`partition data: field "mount": ${mount} cannot be a file system of its own: choose`)
        ] as const
    ),
    [
      {
        ...system({ name: 'lvm', size: 'rest', volumegroup: 'vg' }),
        volumegroups: [
          {
            ...group,
            volumes: [
              { ...root, size: '9G' },
              { ...root, name: 'data', mount: '/run' }
            ]
          }
        ]
      },
      /volume group vg: volume data: field "mount": \/run cannot be a file system of its own/
    ],
    ...['mapper', 'disk', 'shm'].map(
      name =>
        [
          {
            ...system({ name: 'lvm', size: 'rest', volumegroup: name }),
            volumegroups: [{ ...group, name, volumes: [{ ...root, name: 'control' }] }]
          },
          new RegExp(
            `volume group ${name}: field "name": every Linux has a /dev/${name}: choose another name`
          )
        ] as const
    ),
    [{ ...system(root), volumegroups: [group] }, /volume group vg: no partition has it/],
    [disk({ partitions: [] }), /disks system: field "partitions" is missing/],
    [disk({ keep: true, partitions: [] }), /a kept disk without partitions needs "by_id"/],
    [
      disk({
        table: 'msdos',
        partitions: [1, 2, 3, 4, 5].map(i => ({
          ...root,
          name: `p${i}`,
          size: i === 5 ? 'rest' : '1G',
          mount: `/${i}`
        }))
      }),
      /5 partitions are too many for msdos/
    ]
  ]
  for (const [body, reason] of cases) {
    const { status, body: answer } = await c.post('/config/disklayout/x', body)
    t.equal(status, 400, JSON.stringify(body))
    t.match(answer.message, reason)
  }
  t.equal((await c.get('/config/disklayout/x')).status, 404)
  for (const mount of ['/tmp', '/var/tmp', '/etc/x', '/usr', '/library', '/runs', '/boot', '/var']) {
    const body = system({ ...root, size: '9G' }, { ...root, name: 'data', mount })
    t.equal((await c.post(`/config/disklayout/fine${mount.replaceAll('/', '-')}`, body)).status, 201, mount)
  }
})

t.test('a group and a node have a layout', async t => {
  const c = await Controller.start(t)
  const without = [
    ['raid1', /disk layout raid1 does not exist: svcctl disklayout add raid1 --shipped makes it$/],
    ['raid9', /disk layout raid9 does not exist$/]
  ] as const
  for (const [disklayout, says] of without)
    t.match(await c.post('/config/group/early', { disklayout }), { status: 400, body: { message: says } })
  await c.cluster()
  for (const name of ['whole-disk', 'raid1']) {
    const { name: _, ...fields } = shippedLayout(name)
    await c.post(`/config/disklayout/${name}`, fields)
  }
  const partscript = async () => {
    const { text } = await c.get('/config/node/node001/_render/partscript')
    return /^layout='(.*)'$/m.exec(text)?.[1] ?? text.trim()
  }
  const script = (text: string) => Buffer.from(`${text}\n`).toString('base64')
  await c.post('/config/osimage/debian', {})
  await c.post('/config/group/compute', { osimage: 'debian', disklayout: 'whole-disk' })
  t.equal((await c.post('/config/node/node001', { group: 'compute', osimage: 'debian' })).status, 201)
  t.equal(await partscript(), 'whole-disk', "its group's")
  await c.post('/config/node/node001', { disklayout: 'raid1' })
  t.equal(await partscript(), 'raid1', 'its own')
  const both = await c.post('/config/node/node001', { partscript: script('node') })
  t.match(
    both.headers['x-svcd-warning'],
    /has a partscript and the disk layout raid1: the partscript is used/
  )
  t.equal(await partscript(), 'node', 'on one level the script')
  await c.post('/config/node/node001', { partscript: null, disklayout: null })
  await c.post('/config/group/compute', { partscript: script('group') })
  t.equal(await partscript(), 'group')
  await c.post('/config/node/node001', { disklayout: 'raid1' })
  t.equal(await partscript(), 'raid1', "a node's layout is used instead of its group's script")
  const { text } = await c.get('/config/node/node001/_render/kickstart')
  const words = /run_script partscript '(.*?)'/.exec(text)?.[1] ?? ''
  t.match(Buffer.from(words, 'base64').toString(), /^ {2}printf 'ignoredisk --only-use=/m)
  const gone = await c.post('/config/disklayout/raid1/_delete', {})
  t.equal(gone.status, 400)
  t.match(gone.body.message, /disk layout raid1 .*node node001/)
  t.same((await c.get('/config/disklayout/raid1/_member')).body.config.disklayout.raid1.members, ['node001'])
  t.equal((await c.post('/config/disklayout/raid1', { newlayoutname: 'mirror' })).status, 204)
  t.equal((await c.get('/config/node/node001')).body.config.node.node001.disklayout, 'mirror')
  const dry = await c.post('/config/disklayout/mirror?dryrun=yes', {
    comment: 'x',
    disks: system(root).disks
  })
  t.match(dry.body.message, /would write the disk of 1 node|node001/, 'a dry run names the disks')
})

t.test('a dry run warns as the change does: a partscript too, an installer', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  const { name: _, ...raid1 } = shippedLayout('raid1')
  await c.post('/config/disklayout/raid1', raid1)
  await c.post('/config/node/n1', { group: 'compute' })
  for (const [path, before, fields, warning] of [
    [
      'node/n1',
      { disklayout: 'raid1' },
      { partscript: 'Og==' },
      /n1:? (?:it )?has a partscript and the disk layout raid1/
    ],
    [
      'group/compute',
      { disklayout: 'raid1' },
      { provision_method: 'preseed' },
      /compute:? (?:it )?has the disk layout raid1, which its provision_method preseed does not use/
    ],
    [
      'node/n1',
      { provision_method: 'http' },
      { provision_method: 'autoinstall' },
      /n1:? (?:it )?has the disk layout raid1, which .* autoinstall does not/
    ]
  ] as const) {
    await c.post(`/config/${path}`, before)
    t.match((await c.post(`/config/${path}?dryrun=yes`, fields)).headers['x-svcd-warning'], warning)
    t.match((await c.post(`/config/${path}`, fields)).headers['x-svcd-warning'], warning)
    await c.post('/config/node/n1', { partscript: null, disklayout: null })
  }
  t.equal(
    (await c.get('/config/node/n1/_render/partscript')).text.trim(),
    '',
    'no layout beside an installer'
  )
})

t.test('a reinstallation and its dry run warn of the disks of the nodes that would be installed', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  const { name: _, ...raid1 } = shippedLayout('raid1')
  await c.post('/config/disklayout/raid1', raid1)
  await c.post('/config/osimage/debian', {})
  const fields = { disklayout: 'raid1', osimage: 'debian', netboot_once: true }
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01', ...fields })
  const inventory = machine({ disks: [{ name: 'sda', size: 960e9 }] })
  const token = await scriptToken(c, 'n1')
  const posted = await c.post(
    '/monitor/inventory/n1',
    { monitor: { inventory: { n1: inventory } } },
    { token }
  )
  t.equal(posted.status, 204, posted.text)
  const set = async (query: string, netboot: boolean) => {
    const body = { nodes: 'n1', fields: { netboot, netboot_once: true } }
    return (await c.post(`/config/node/_set${query}`, body)).headers['x-svcd-warning']
  }
  for (const query of ['?dryrun=yes', ''])
    t.match(await set(query, true), /^n1 has 1 fitting disk[^;]*; its [^;]*$/)
  for (const query of ['?dryrun=yes', '']) t.equal(await set(query, false), undefined, 'nothing is installed')
  t.match(await set('?dryrun=yes', true), /^n1 has 1 fitting disk[^;]*; its [^;]*$/, 'of a node that changes')
})

const gib = (count: number, more = {}) => ({ size: count * 2 ** 30, rotational: true, ...more })

t.test('a layout and the inventory of a node', t => {
  const of = (layout: DisklayoutDoc, ...disks: Parameters<typeof layoutProblem>[1]) =>
    layoutProblem(layout, disks)
  const sda = { name: 'sda', ...gib(100) }
  t.equal(
    of(shippedLayout('raid1'), sda),
    'has 1 fitting disk(s) for "system", the disk layout raid1 needs 2 (964 MiB or more); ' +
      'its disks: sda hdd 102400 MiB'
  )
  t.equal(of(shippedLayout('raid1'), sda, { ...sda, name: 'sdb' }), undefined)
  t.match(of(shippedLayout('scratch-nvme'), sda), /0 fitting disk\(s\) for "scratch", .* needs 1 \(nvme,/)
  t.equal(of(shippedLayout('scratch-nvme'), sda, { name: 'nvme0n1', ...gib(9) }), undefined)
  t.match(
    of({ name: 'two', disks: [{ name: 'system' }, { name: 'data' }] }, sda),
    /0 fitting disk\(s\) for "data", .*\); sda is taken by "system"; its disks: sda hdd/
  )
  const all = [
    { name: 'sda', ...gib(100, { rotational: false }), by_id: ['wwn-1', 'ata-one'] },
    ...['sdb', 'sdc'].map(name => ({ name, ...gib(50, { rotational: false }) })),
    { name: 'sdd', ...gib(2000) },
    { name: 'sde', ...gib(40) }
  ]
  t.equal(of(wholeLayout, ...all), undefined)
  t.match(of(wholeLayout, ...all.slice(1)), /for "data", .* needs 1 \(ata-\*, \d+ MiB/)
  t.end()
})

t.test('the disks of nodes against the layouts that they have', t => {
  const { name: _, ...raid1 } = shippedLayout('raid1')
  const { model } = new MemoryCluster({
    'disklayout/raid1': raid1,
    'group/compute': { disklayout: 'raid1' },
    'node/node001': { group: 'compute' },
    'node/node002': { group: 'compute' },
    'node/node003': { group: 'compute', partscript: 'Og==' },
    'node/node004': {},
    'disklayout/secret': { disks: [{ name: 'a', partitions: [{ name: 'b', secret: 'key' }] }] },
    'node/node007': { disklayout: 'secret' },
    'node/node005': { group: 'compute' },
    'node/node006': { group: 'compute', provision_method: 'preseed' }
  })
  const secret = layoutWarnings(model, ['node007'], () => undefined)
  t.same(secret, ['node007 lacks the secret "key" of the disk layout secret'])
  const disksOf = (node: string) => (node === 'node002' ? undefined : [{ name: 'sda', ...gib(100) }])
  const nodes = ['node001', 'node002', 'node003', 'node004', 'node005', 'node006', 'none']
  const found = layoutWarnings(model, nodes, disksOf)
  t.equal(found.length, 1, 'no inventory, a script, no layout, an installer: nothing is said')
  t.match(found[0], /^node\[001,005\]: each has 1 fitting disk/, 'one line for nodes that are alike')
  t.end()
})
