import { cpSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { withoutFile } from '../../lib/boot/roles.js'
import { Controller } from '../support/controller.js'
import { until } from '../support/until.js'

const url = 'http://10.141.255.254:7050'
const mac = '52:54:00:00:00:01'
const none = { token: null }

/** The kernel arguments of a boot script, in order. */
const argumentsOf = (script: string) => /^imgargs kernel (.*) \|\| goto failed$/m.exec(script)?.[1]

async function booted(...overrides: string[]): Promise<Controller> {
  const c = await Controller.start(t, ...overrides)
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
  return c
}

const given = t.testdir({
  ipxe: { 'ipxe.efi': 'binary', sub: {} },
  roles: { login: '# target: graphical.target\necho hi\n', plain: 'echo plain\n' },
  scripts: { fix: 'echo fix\n' }
})
let started: Promise<Controller> | undefined
/** A controller for the tests that only ask: none of them changes an object. */
async function asked(): Promise<Controller> {
  const directories = Object.entries({
    'boot.ipxe_directory': 'ipxe',
    'paths.roles': 'roles',
    'paths.scripts': 'scripts'
  })
  started ??= booted(...directories.map(([key, name]) => `${key}=${join(given, name)}`))
  return started
}

// rules 4.1, 4.13
t.test('boot template selection, cases 1 to 4', async t => {
  const c = await booted()
  const search = (address = mac) => c.get(`/boot/search/mac/${address}`, none)
  const menu = (await c.get('/boot', none)).text
  t.match(menu, /^#!ipxe\n/)
  t.match(menu, /choose --default search --timeout 5000 /)
  t.match(menu, /item compute compute/)
  t.match(menu, /item node001 node001/)
  t.match(menu, `chain --replace ${url}/boot/search/mac/\${netX/mac}`)
  const short = (await c.get('/boot/short', none)).text
  t.match(short, /^#!ipxe\n/)
  t.match(short, /--timeout 1000 /)
  t.notMatch(short, /compute|node001/, 'without nodes and groups')
  const disk = (await c.get('/boot/disk', none)).text
  t.match(disk, /sanboot .*--drive 0x80/)

  const known = await search()
  t.equal(known.headers['content-type'], 'text/plain; charset=utf-8')
  t.match(known.text, `imgfetch --name kernel ${url}/boot/vmlinuz`)
  t.match(known.text, `imgfetch --name initrd.img ${url}/boot/initrd.img`)
  t.match(known.text, /imgexec kernel/)
  await c.post('/config/node/node001', { netboot: false })
  t.equal((await search()).text, disk, 'case 3: netboot false')
  await c.post('/config/node/node001', { bootmenu: true })
  t.equal((await search()).text, disk, 'case 3: bootmenu any')

  const unknown = (await search('52:54:00:00:00:99')).text
  t.match(unknown.split('\n')[1], /52:54:00:00:00:99.*unknown/, 'its first line says which MAC')
  t.match(unknown, /choose --default search --timeout 15000 /, 'and it asks again')
})

// rules 4.2
t.test('kernel arguments: order, static and dhcp, domain, options', async t => {
  const c = await booted()
  const args = async () => argumentsOf((await c.get(`/boot/search/${mac}`, none)).text)
  const head = 'root=svc svc.bootproto='
  const rest = (ip: string, host: string, service = 0) =>
    `svc.mac=${mac} svc.ip=${ip} svc.url=${url} svc.node=node001 svc.hostname=${host} svc.service=${service} initrd=initrd.img`
  t.equal(await args(), `${head}static ${rest('10.141.0.1/16', 'node001.cluster')}`)
  await c.post('/config/group/compute', { domain: 'example.org' })
  await c.post('/config/node/node001', { service: true })
  await c.post('/config/osimage/compute', { kerneloptions: 'console=ttyS0,115200 quiet a="b c"' })
  t.equal(
    await args(),
    `${head}static ${rest('10.141.0.1/16', 'node001.example.org', 1)} console=ttyS0,115200 quiet a="b c"`
  )
  await c.post('/config/network/cluster', {
    dhcp: true,
    dhcp_range_begin: '10.141.9.0',
    dhcp_range_end: '10.141.9.9'
  })
  await c.post('/config/node/node001', {
    interfaces: [{ interface: 'BOOTIF', ipaddress: null }],
    service: false
  })
  await c.post('/config/osimage/compute', { kerneloptions: '' })
  t.equal(await args(), `${head}dhcp ${rest('', 'node001.example.org')}`)
  for (const bad of ['a ; b', 'a && b', 'x ${net0/mac}', 'two\nlines', 'tab\there', 'é', 'a #b'])
    t.equal(
      (await c.post('/config/osimage/compute', { kerneloptions: bad })).status,
      400,
      JSON.stringify(bad)
    )
})

// rules 4.2, 3.4
t.test('kernel options of the group and of the node follow those of the image', async t => {
  const c = await booted()
  const args = async () => {
    const text = argumentsOf((await c.get(`/boot/search/${mac}`, none)).text) ?? ''
    return text.slice(text.indexOf('initrd=initrd.img') + 'initrd=initrd.img'.length)
  }
  const shown = async (type: string, name: string) => {
    const { kerneloptions, _kerneloptions, _kerneloptions_source } = (await c.get(`/config/${type}/${name}`))
      .body.config[type][name]
    return [kerneloptions, _kerneloptions, _kerneloptions_source]
  }
  const set = async (type: string, name: string, kerneloptions: string | null) =>
    (await c.post(`/config/${type}/${name}`, { kerneloptions })).status
  t.equal(await args(), '', 'nobody sets any')
  t.same(await shown('node', 'node001'), [null, '', 'default'])
  t.equal(await set('node', 'node001', 'of.node=1'), 204)
  t.equal(await args(), ' of.node=1')
  t.same(await shown('node', 'node001'), ['of.node=1', 'of.node=1', 'node'])
  t.equal(await set('osimage', 'compute', 'of.image=1'), 204)
  t.equal(await set('group', 'compute', 'of.group=1 quiet'), 204)
  const all = 'of.image=1 of.group=1 quiet of.node=1'
  t.equal(await args(), ` ${all}`)
  t.same(await shown('node', 'node001'), ['of.node=1', all, 'image+group+node'])
  t.same(await shown('group', 'compute'), ['of.group=1 quiet', 'of.image=1 of.group=1 quiet', 'image+group'])
  t.same(
    (await c.get('/config/node')).body.config.node.node001._kerneloptions,
    all,
    'the list follows a change of the image'
  )
  const { body } = await c.get('/config/node/node001')
  t.equal((await c.post('/config/node/node001', body)).status, 204, 'what was read is posted back')
  t.same(await shown('node', 'node001'), ['of.node=1', all, 'image+group+node'])
  for (const what of ['boot', 'install', 'kickstart'])
    t.match((await c.get(`/config/node/node001/_render/${what}`)).text, all, `_render/${what}`)
  for (const type of ['group', 'node'])
    for (const bad of ['a ; b', 'x ${net0/mac}', 'two\nlines', 'a #b'])
      t.equal(await set(type, type === 'group' ? 'compute' : 'node001', bad), 400, `${type}: ${bad}`)
  t.equal(await set('group', 'compute', null), 204)
  t.equal(await args(), ' of.image=1 of.node=1')
  t.equal(await set('node', 'node001', ''), 204)
  t.same(await shown('node', 'node001'), [null, 'of.image=1', 'image'])
})

// rules 4.14
t.test(
  'the boot script: fetch, load, arguments, fetch, execute; back to the menu when one of them fails',
  async t => {
    const c = await asked()
    const script = (await c.get(`/boot/search/${mac}`, none)).text
    const [commands = '', failed = ''] = script.split(':failed')
    const lines = commands.split('\n').filter(line => line.startsWith('img'))
    t.same(
      lines.map(line => line.replace(/ (root=|http|\|\|).*/, '')),
      [
        'imgfetch --name kernel',
        'imgload kernel',
        'imgargs kernel',
        'imgfetch --name initrd.img',
        'imgexec kernel'
      ]
    )
    for (const line of lines) t.match(line, / \|\| goto failed$/)
    t.match(failed, `chain --replace ${url}/boot/short`, 'the short menu, as bootmenu is off')
  }
)

// rules 3.9, 4.1
t.test('MACs as clients write them, and malformed ones', async t => {
  const c = await asked()
  const expected = (await c.get(`/boot/search/mac/${mac}`, none)).text
  for (const form of ['52%3A54%3A00%3A00%3A00%3A01', '52-54-00-00-00-01', '5254.0000.0001', '525400000001'])
    t.equal((await c.get(`/boot/search/mac/${form}`, none)).text, expected, form)
  for (const bad of ['', '52:54:00:00:00', 'gg:54:00:00:00:01', '52:54:00:00:00:01:02', '%00']) {
    const reply = await c.get(`/boot/search/mac/${bad}`, none)
    t.ok([400, 404].includes(reply.status), bad)
    t.type(reply.body.message, 'string')
  }
})

// rules 4.1, 6.2
t.test('a known node that cannot boot is told why, and the reason can be read', async t => {
  const c = await booted()
  const why = async () => {
    const script = (await c.get(`/boot/search/mac/${mac}`, none)).text
    t.match(script, /^#!ipxe\n/)
    t.match(script, /node node001/)
    t.match(script, `chain --replace ${url}/boot/short`)
    const { reason } = (await c.get('/monitor/node/node001')).body.monitor.status.node001
    t.ok(script.includes(reason.replaceAll(/[()]/g, (x: string) => x)), `${reason} stands in the script`)
    return reason
  }
  await c.post('/config/osimage/compute', { imagefile: 'gone.tar.gz' })
  t.match(await why(), /gone\.tar\.gz, is missing/)
  c.file('gone.tar.gz')
  t.ok(
    argumentsOf((await c.get(`/boot/search/mac/${mac}`, none)).text),
    'bootable the moment the file is there'
  )
  t.equal((await c.get('/monitor/node/node001')).body.monitor.status.node001.reason, null)
  await c.post('/config/osimage/compute', { kernelfile: null })
  t.match(await why(), /has no kernel/)
  await c.post('/config/osimage/compute', { kernelfile: 'vmlinuz' })
  await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] })
  t.match(await why(), /neither an address nor DHCP/)
  await c.post('/config/group/compute', { osimage: null })
  t.match(await why(), /no OS image/)
  t.equal(c.log.filter(line => line.includes('cannot boot')).length, 4, 'each reason is logged once')
})

// rules 4.4
t.test('/boot/manual/hostname: the MAC moves, its former owner loses it and its status', async t => {
  const c = await booted()
  await c.post('/config/node/node002', { group: 'compute' })
  await c.post('/monitor/node/node001', {
    monitor: { status: { node001: { state: 'installer.completed' } } }
  })
  const before = c.state()
  const plain = await c.get('/boot/manual/hostname/node002', none)
  t.match(argumentsOf(plain.text), 'svc.mac=${netX/mac} svc.ip=10.141.0.2/16')
  t.same(c.state(), before, 'without a MAC nothing is stored')

  const moved = await c.get(`/boot/manual/hostname/node002/${mac}`, none)
  t.match(argumentsOf(moved.text), `svc.mac=${mac} svc.ip=10.141.0.2/16`)
  const nodes = (await c.get('/config/node')).body.config.node
  t.equal(nodes.node001.macaddr, null)
  t.equal(nodes.node001.status, null)
  t.equal(nodes.node002.macaddr, mac)
  const after = c.state()
  t.equal((await c.get(`/boot/manual/hostname/node002/${mac}`, none)).text, moved.text)
  t.same(c.state(), after, 'asking again changes nothing')
  const unknown = await c.get(`/boot/manual/hostname/nobody/${mac}`, none)
  t.equal(unknown.status, 200)
  t.match(unknown.text, /no node nobody/)
  t.same(c.state(), after)
  t.equal((await c.get(`/boot/manual/hostname/node002/${mac}`, { ...none, method: 'HEAD' })).status, 405)
})

// rules 4.3
t.test('/boot/manual/group: the member with the MAC, the first free one, else a new one', async t => {
  const c = await booted()
  for (const name of ['node010', 'node2', 'node9']) await c.post(`/config/node/${name}`, { group: 'compute' })
  const pick = async (address: string) => {
    const reply = await c.get(`/boot/manual/group/compute/${address}`, none)
    return /svc\.node=(\S+)/.exec(reply.text)?.[1]
  }
  t.equal(await pick(mac), 'node001', 'a member that has the MAC is the node')
  t.equal(await pick('52:54:00:00:00:02'), 'node2')
  t.equal(await pick('52:54:00:00:00:03'), 'node9')
  t.equal(await pick('52:54:00:00:00:04'), 'node010')
  t.equal(await pick('52:54:00:00:00:05'), 'node011', 'the highest-numbered name plus one, digits kept')
  t.equal(await pick('52:54:00:00:00:05'), 'node011')
  await c.post('/config/group/Big_Group.x', {
    osimage: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  t.match(
    (await c.get('/boot/manual/group/Big_Group.x/52:54:00:00:00:06', none)).text,
    /svc\.node=biggroupx001 /
  )
  t.match((await c.get(`/boot/manual/group/Big_Group.x/${mac}`, none)).text, /svc\.node=biggroupx002 /)
  t.equal((await c.get('/config/node/node001')).body.config.node.node001.macaddr, null, 'the MAC has moved')
  t.match((await c.get(`/boot/manual/group/nobody/${mac}`, none)).text, /no group nobody/)
})

// rules 4.5
t.test('[boot] manual: who may choose a node', async t => {
  const path = `/boot/manual/group/compute/${mac}`
  for (const [manual, asked] of [
    [
      'networks',
      [
        ['10.141.0.9', 200],
        ['127.0.0.1', 200],
        ['192.0.2.1', 403],
        ['fd00::1', 403]
      ]
    ],
    ['any', [['192.0.2.1', 200]]],
    ['none', [['127.0.0.1', 403]]]
  ] as const) {
    const c = await booted(`boot.manual=${manual}`)
    for (const [source, status] of asked) {
      const before = c.state()
      const reply = await c.get(path, { ...none, source })
      t.equal(reply.status, status, `${manual} ${source}`)
      if (status === 403) t.match(reply.body.message, source)
      t.same(c.state(), before, 'node001 has this MAC already')
    }
  }
})

// rules 4.6
t.test('the install script is for the node alone', async t => {
  const c = await booted()
  await c.post('/config/node/node002', { group: 'compute' })
  const from = (source: string, token: string | null = null) =>
    c.get('/boot/install/node001', { source, token })
  const own = await from('10.141.0.1')
  t.equal(own.status, 200)
  t.match(own.text, /SVC_TOKEN=/)
  for (const source of ['10.141.0.2', '127.0.0.1', '10.141.255.254', '::1'])
    for (const token of [null, c.token]) {
      const refused = await from(source, token)
      t.equal(refused.status, 401, source)
      t.match(refused.body.message, /node001/)
    }
  t.equal((await from('10.141.0.1', 'garbage')).status, 401, 'a token that is sent must be valid')
  t.equal((await c.get('/boot/install/nobody', none)).status, 404)
  const token = /^SVC_TOKEN='([^']+)'/m.exec(own.text)?.[1] ?? ''
  const report = { monitor: { status: { node001: { state: 'installer.started' } } } }
  t.equal((await c.post('/monitor/node/node001', report, { token })).status, 204)
  t.equal((await c.get('/config/node/node001')).body.config.node.node001.status, 'installer.started')
})

// rules 4.6
t.test('dynamic_nodes: the first address of the range that fetched the boot script', async t => {
  const dynamic = async (...overrides: string[]) => {
    const c = await booted(...overrides)
    const range = { dhcp: true, dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.9' }
    await c.post('/config/network/cluster', range)
    await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] })
    return c
  }
  const c = await dynamic('boot.dynamic_nodes=yes')
  const install = async (source: string) => (await c.get('/boot/install/node001', { ...none, source })).status
  const search = (source: string) => c.get(`/boot/search/mac/${mac}`, { ...none, source })
  t.equal(await install('10.141.9.2'), 401)
  await search('10.141.0.77')
  t.equal(await install('10.141.0.77'), 401, 'outside the range')
  await search('10.141.9.2')
  await search('10.141.9.3')
  t.equal(await install('10.141.9.2'), 200)
  t.equal(await install('10.141.9.3'), 401, 'the second one')
  t.equal(await install('::1'), 401)
  t.equal(c.log.filter(line => line.includes('granted')).length, 1, 'each grant is logged')
  await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.5' }] })
  t.equal(await install('10.141.9.2'), 401, 'a fixed address ends it')

  const off = await dynamic()
  await off.get(`/boot/search/mac/${mac}`, { ...none, source: '10.141.9.2' })
  t.equal((await off.get('/boot/install/node001', { ...none, source: '10.141.9.2' })).status, 401)
})

// rules 4.7
t.test('the kickstart hides what is secret from everybody else', async t => {
  const c = await booted('kickstart.rootpw=$6$salt$hash')
  await c.post('/config/bmcsetup/bmc', { username: 'root', password: 'hunter2' })
  await c.post('/config/group/compute', { setupbmc: true, bmcsetupname: 'bmc' })
  const own = (await c.get('/kickstart/install/node001', { ...none, source: '10.141.0.1' })).text
  t.match(own, /\$6\$salt\$hash/)
  const other = (await c.get('/kickstart/install/node001', none)).text
  t.notMatch(other, /hash|hunter2|eyJ/)
  t.match(other, /\*{8}/)
  t.equal((await c.get('/kickstart/install/nobody', none)).status, 404)
})

// rules 4.9
t.test('files: kernels to anyone, images to the configured networks', async t => {
  const c = await asked()
  c.file('secret.txt')
  c.file('compute.tar.gz.torrent')
  t.equal((await c.get('/boot/vmlinuz', { ...none, source: '192.0.2.1' })).text, 'vmlinuz')
  const head = await c.get('/boot/initrd.img', { ...none, method: 'HEAD' })
  t.equal(head.headers['content-length'], '10')
  t.equal(head.text, '')
  const part = await c.get('/files/compute.tar.gz', { ...none, headers: { range: 'bytes=2-4' } })
  t.equal(part.status, 206)
  t.equal(part.text, 'mpu')
  for (const [source, token, status] of [
    ['10.141.3.4', null, 200],
    ['127.0.0.1', null, 200],
    ['192.0.2.1', null, 401],
    ['192.0.2.1', c.token, 200],
    ['192.0.2.1', 'garbage', 401],
    ['10.141.3.4', 'garbage', 200]
  ] as const)
    t.equal(
      (await c.get('/files/compute.tar.gz', { source, token })).status,
      status,
      `${source} ${token !== null}`
    )
  t.equal((await c.get('/files/compute.tar.gz.torrent', none)).status, 200)
  for (const path of [
    '/boot/secret.txt',
    '/files/secret.txt',
    '/boot/compute.tar.gz',
    '/files/vmlinuz',
    '/files/..'
  ])
    t.equal((await c.get(path, none)).status, 404, path)
  t.equal((await c.post('/config/osimage/compute', { kernelfile: 'disk' })).status, 400)
  t.equal((await c.post('/config/osimage/compute', { kernelfile: '../secret.txt' })).status, 400)
})

// rules 4.9
t.test('iPXE binaries are served from [boot] ipxe_directory', async t => {
  const c = await asked()
  t.equal((await c.get('/boot/ipxe.efi', none)).text, 'binary')
  t.equal((await c.get('/boot/sub', none)).status, 404)
  t.equal((await c.get('/boot/other.efi', none)).status, 404)
})

// rules 4.10
t.test('roles and scripts', async t => {
  const c = await asked()
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  t.same((await c.get('/boot/roles/login')).body, {
    target: 'graphical.target',
    script: base64('# target: graphical.target\necho hi\n')
  })
  t.same((await c.get('/boot/roles/plain')).body, {
    target: 'multi-user.target',
    script: base64('echo plain\n')
  })
  t.same((await c.get('/boot/scripts/fix')).body, { target: 'post', script: base64('echo fix\n') })
  t.equal((await c.get('/boot/roles/absent')).status, 404)
  t.equal((await c.get('/boot/roles/login', none)).status, 401)
})

// rules 4.11
t.test('a template changed on disk works without a restart; a broken one breaks its route alone', async t => {
  const directory = t.testdir({})
  cpSync(fileURLToPath(new URL('../../templates', import.meta.url)), directory, { recursive: true })
  const c = await booted(`paths.templates=${directory}`)
  const file = join(directory, 'boot', 'templ_boot_disk.cfg')
  const shipped = readFileSync(file, 'utf8')
  t.equal((await c.get('/boot/disk', none)).status, 200)
  const write = async (text: string) => {
    writeFileSync(file, text)
    utimesSync(file, new Date(), new Date(Date.now() + 5000))
    await new Promise(resolve => setTimeout(resolve, 1100))
  }
  await write('#!ipxe\necho mine\n')
  t.equal((await c.get('/boot/disk', none)).text, '#!ipxe\necho mine\n')
  await write('#!ipxe\necho {{ nothing }}\n')
  const broken = await c.get('/boot/disk', none)
  t.equal(broken.status, 503)
  t.match(broken.body.message, /templ_boot_disk\.cfg:2:\d+.*nothing/)
  t.ok(
    c.log.some(line => line.includes('templ_boot_disk.cfg:2:')),
    'logged'
  )
  t.equal((await c.get('/boot', none)).status, 200)
  await write(shipped)
  t.equal((await c.get('/boot/disk', none)).status, 200)
})

// rules 4.13
t.test('the menu has a bound, however many nodes there are', async t => {
  const c = await booted()
  for (let i = 0; i < 255; i++) await c.post(`/config/node/x${i}`, {})
  const menu = (await c.get('/boot', none)).text
  t.equal(menu.match(/^item (node001|x\d+) /gm)?.length, 250)
  t.match(menu, /more nodes than are listed/)
})

t.test('a boot script is not given while its files are being replaced', async t => {
  const c = await booted()
  const kernel = join(c.directory, 'files', 'vmlinuz')
  rmSync(kernel)
  await new Promise(resolve => setTimeout(resolve, 300))
  t.match((await c.get(`/boot/search/mac/${mac}`, none)).text, /vmlinuz, is missing/)
  mkdirSync(kernel)
  t.match(
    (await c.get(`/boot/search/mac/${mac}`, none)).text,
    /vmlinuz, is missing/,
    'a directory is no kernel'
  )
})

// rules 4.6
t.test('a grant belongs to the machine it was made for, not to the name', async t => {
  const c = await booted('boot.dynamic_nodes=yes')
  const dynamic = { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] }
  await c.post('/config/network/cluster', {
    dhcp: true,
    dhcp_range_begin: '10.141.9.1',
    dhcp_range_end: '10.141.9.9'
  })
  await c.post('/config/node/node001', dynamic)
  const search = (address: string, source: string) =>
    c.get(`/boot/search/mac/${address}`, { ...none, source })
  const install = async (source: string) => (await c.get('/boot/install/node001', { ...none, source })).status
  await search(mac, '10.141.9.2')
  t.equal(await install('10.141.9.2'), 200)
  await c.get('/boot/manual/hostname/node001/52:54:00:00:00:77', { ...none, source: '10.141.9.3' })
  t.equal(await install('10.141.9.2'), 401, 'the board was changed: the old one is nobody')
  t.equal(await install('10.141.9.3'), 200, 'and the new one installs')
  await c.get('/config/node/node001/_delete')
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:88', ...dynamic })
  t.equal(await install('10.141.9.3'), 401, 'a node made anew under the name')
})

// rules 4.3
t.test("a BMC's MAC boots nobody", async t => {
  const c = await booted()
  const bmc = '52:54:00:00:00:b0'
  await c.post('/config/node/node001', {
    interfaces: [{ interface: 'BMC', network: 'cluster', macaddress: bmc }]
  })
  t.match((await c.get(`/boot/search/mac/${bmc}`, none)).text, /is unknown/)
  const before = c.state()
  const refused = await c.get(`/boot/manual/hostname/node001/${bmc}`, none)
  t.equal(refused.status, 400)
  t.match(refused.body.message, /BMC of node node001/)
  t.match((await c.get(`/boot/manual/group/compute/${bmc}`, none)).text, /BMC of node node001/)
  t.same(c.state(), before)
})

// rules 4.3
t.test('a group whose network is full says so on the screen', async t => {
  const c = await booted()
  await c.post('/config/network/tiny', { network: '10.9.0.0/30', gateway: '10.9.0.1' })
  await c.post('/config/group/small', { interfaces: [{ interface: 'BOOTIF', network: 'tiny' }] })
  await c.get('/boot/manual/group/small/52:54:00:00:00:21', none)
  const before = c.state()
  const full = await c.get('/boot/manual/group/small/52:54:00:00:00:22', none)
  t.equal(full.status, 200)
  t.match(full.text, /network tiny has no free address/)
  t.same(c.state(), before)
})

// rules 2.5
t.test('a HEAD is answered as its GET and leaves no trace', async t => {
  const c = await booted('boot.dynamic_nodes=yes')
  const head = (path: string, source = '10.141.0.1') => c.get(path, { ...none, source, method: 'HEAD' })
  const lengthOf = ({ headers }: { headers: Readonly<Record<string, unknown>> }) => headers['content-length']
  const paths = [`/boot/search/${mac}`, '/boot/manual/hostname/node001', '/boot/install/node001']
  const lengths = new Map<string, unknown>()
  for (const path of [...paths, '/kickstart/install/node001']) {
    const answer = await head(path)
    t.same([answer.status, answer.text], [200, ''], path)
    // A token's length varies.
    if (path.startsWith('/boot/search') || path.startsWith('/boot/manual'))
      lengths.set(path, lengthOf(answer))
  }
  t.equal((await head('/boot/install/node001', '10.141.0.2')).status, 401)
  t.same([...c.daemon.images.installing.packs()], [], 'no installation has begun')
  for (const [path, length] of lengths)
    t.equal(lengthOf(await c.get(path, { ...none, source: '10.141.0.1' })), length, path)
  await c.get('/boot/install/node001', { ...none, source: '10.141.0.1' })
  t.same([...c.daemon.images.installing.packs()], ['compute.tar.gz'], 'a GET begins one')

  await c.post('/config/network/cluster', {
    dhcp: true,
    dhcp_range_begin: '10.141.9.1',
    dhcp_range_end: '10.141.9.9'
  })
  await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] })
  for (const path of paths.slice(0, 2)) await head(path, '10.141.9.3')
  t.equal((await head('/boot/install/node001', '10.141.9.3')).status, 401)
  t.notOk(
    c.log.some(line => line.includes('is granted')),
    'nothing is granted'
  )
  await c.get(`/boot/search/${mac}`, { ...none, source: '10.141.9.2' })
  for (const [source, status] of [
    ['10.141.9.2', 200],
    ['10.141.9.3', 401]
  ] as const) {
    t.equal((await head('/boot/install/node001', source)).status, status, source)
    t.equal((await c.get('/boot/install/node001', { ...none, source })).status, status, source)
  }

  await c.post('/config/osimage/compute', { kernelfile: null })
  for (const path of paths.slice(0, 2)) await head(path)
  const { reason } = (await c.get('/monitor/node/node001')).body.monitor.status.node001
  t.equal(reason, null)
  t.notOk(c.log.some(line => line.includes('cannot boot')))
})

// rules 4.21
t.test(
  'a node that asks from outside its network is told so on its console, in the log, at /monitor',
  async t => {
    const c = await booted('http.trusted_proxies=127.0.0.1')
    const search = async (source: string | undefined, headers: Record<string, string> = {}) => {
      const path = `/boot/search/mac/${mac}`
      const script = (await c.get(path, { ...none, headers, ...(source ? { source } : {}) })).text
      t.ok(argumentsOf(script)?.includes('svc.ip=10.141.0.1/16'), 'the script is the node’s all the same')
      return /^echo svcd: (.*outside.*)$/m.exec(script)?.[1]
    }
    const reason = async () => (await c.get('/monitor/node/node001')).body.monitor.status.node001.reason
    const logged = () => c.log.filter(line => line.includes('outside'))
    for (const [what, source, headers] of [
      ['its own address', '10.141.0.1', {}],
      ['a lease in its network', '10.141.9.9', {}],
      ['loopback', '127.0.0.1', {}],
      ['a proxy that vouches for an address inside', undefined, { 'x-forwarded-for': '10.141.0.1' }],
      ['IPv6', 'fd00::1', {}]
    ] as const) {
      t.equal(await search(source, headers), undefined, what)
      t.equal(await reason(), null, what)
    }
    t.same(logged(), [])
    const why = (address: string) =>
      `node node001 asks for its boot script from ${address}, outside network cluster (10.141.0.0/16) of its interface BOOTIF`
    for (const [what, source, headers] of [
      ['another network', '192.0.2.7', {}],
      ['a proxy that vouches for one outside', undefined, { 'x-forwarded-for': '192.0.2.7' }]
    ] as const) {
      t.equal(await search('10.141.0.1'), undefined)
      t.equal(await search(source, headers), why('192.0.2.7'), what)
      t.equal(await reason(), why('192.0.2.7'), what)
    }
    t.equal(logged().length, 1, 'once, however often it is asked')
    await c.restart()
    t.equal(await reason(), why('192.0.2.7'), 'a restart forgets nothing')
    await search('10.141.0.1')
    t.equal(await reason(), null)
    await c.post('/config/node/node001', { netboot: false })
    t.notMatch((await c.get(`/boot/search/mac/${mac}`, { ...none, source: '192.0.2.7' })).text, /outside/)
    await c.post('/config/node/node001', { netboot: true })
    await c.post('/config/osimage/compute', { kernelfile: null })
    await c.get(`/boot/search/mac/${mac}`, { ...none, source: '192.0.2.7' })
    t.match(await reason(), /no kernel/, 'what keeps it from booting goes first')
  }
)

// rules 4.21, 6.2
t.test('a template that fails for those alone who ask in another way is no reason of the node', async t => {
  const directory = join(t.testdir(), 'templates')
  cpSync(fileURLToPath(new URL('../../templates', import.meta.url)), directory, { recursive: true })
  const file = join(directory, 'boot', 'templ_boot_node.cfg')
  const template = readFileSync(file, 'utf8')
  writeFileSync(file, `${template}{% if warning %}{{ variables.nothing }}{% endif %}\n`)
  const c = await booted(`paths.templates=${directory}`)
  const reasonAfter = async (source: string) => {
    const { status } = await c.get(`/boot/search/mac/${mac}`, { ...none, source })
    const { reason } = (await c.get('/monitor/node/node001')).body.monitor.status.node001
    return [status, reason]
  }
  t.same(await reasonAfter('10.141.0.1'), [200, null])
  t.match(await reasonAfter('192.0.2.7'), [
    503,
    /^node node001 asks for its boot script from 192\.0\.2\.7, outside /
  ])
  t.same(await reasonAfter('10.141.0.1'), [200, null])
  writeFileSync(file, `${template}{% if mac == "\${netX/mac}" %}{{ variables.nothing }}{% endif %}\n`)
  utimesSync(file, new Date(), new Date(Date.now() + 2000))
  const byName = () => c.get('/boot/manual/hostname/node001', { ...none, source: '10.141.0.1' })
  await until(async () => (await byName()).status === 503)
  t.equal(
    (await c.get('/monitor/node/node001')).body.monitor.status.node001.reason,
    null,
    'nor for those without a MAC'
  )
  writeFileSync(file, `${template}{{ variables.nothing }}\n`)
  utimesSync(file, new Date(), new Date(Date.now() + 5000))
  await until(async () => (await reasonAfter('10.141.0.1'))[0] === 503)
  for (const source of ['10.141.0.1', '192.0.2.7'])
    t.match(
      await reasonAfter(source),
      [503, /^its boot script cannot be rendered: /],
      'it fails for the node too'
    )
})

// rules 9.2
t.test('the install script knows checksum and size of what svcd packed', async t => {
  const c = await booted()
  const install = async () => (await c.get('/boot/install/node001', { ...none, source: '10.141.0.1' })).text
  t.match(await install(), /^SVC_IMAGESUM=''\nSVC_IMAGESIZE=0$/m, 'a file of the admin’s')
  const pack = {
    name: 'compute.tar.gz',
    osimage: 'compute',
    sha256: 'ab'.repeat(32),
    bytes: 7_340_033,
    time: 1_000,
    packer: 'system'
  }
  const file = join(c.directory, 'state', 'pack', 'compute.tar.gz.json')
  writeFileSync(file, `${JSON.stringify(pack, null, 2)}\n`)
  await c.restart()
  t.match(await install(), `SVC_IMAGESUM='${pack.sha256}'\nSVC_IMAGESIZE=7340033\n`)
})

// rules 4.10
t.test('a role that has no file is taken, with a word in the log and in the previews', async t => {
  const roles = t.testdir({ login: '#!/bin/sh\n', folder: {} })
  const c = await booted(`paths.roles=${roles}`)
  const told = () => c.log.splice(0).filter(line => line.includes('role'))
  for (const [what, path, given, missing] of [
    ['one with a file', 'group/compute', 'login', []],
    ['two without', 'group/compute', 'login, slurm,folder', ['slurm', 'folder']],
    ['the same again', 'group/compute', 'login, slurm,folder', []],
    ['the own ones of a node', 'node/node001', 'slurm', ['slurm']],
    ['none', 'group/compute', null, []]
  ] as const) {
    c.log.length = 0
    t.equal((await c.post(`/config/${path}`, { roles: given })).status, 204, what)
    const user = path.replace('/', ' ')
    const lines = told()
    t.equal(lines.length, missing.length, what)
    for (const role of missing)
      t.ok(
        lines.some(line =>
          line.includes(`${user} has the role ${role}, and there is no file ${join(roles, role)}`)
        ),
        `${what}: ${role}`
      )
  }
  for (const preview of ['install', 'kickstart']) {
    const path = `/config/node/node001/_render/${preview}`
    t.match((await c.get(path)).text, /^# Warning: role "slurm" has no file/m)
    writeFileSync(join(roles, 'slurm'), '')
    t.notMatch((await c.get(path)).text, /Warning: role/)
    rmSync(join(roles, 'slurm'))
  }
  t.notMatch((await c.get('/boot/install/node001', { ...none, source: '10.141.0.1' })).text, /Warning: role/)
})

t.test('a directory of roles that cannot be searched is an error, and no role is taken for present', t => {
  // Nothing is closed to root: a loop stands for a directory that svcd may not search.
  const loop = join(t.testdir({ loop: t.fixture('symlink', 'loop') }), 'loop')
  t.throws(() => withoutFile(loop, ['login']), { code: 'ELOOP' })
  t.end()
})
