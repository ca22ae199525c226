import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const mac = '52:54:00:00:00:01'
const template = 'node {{ node }} ntp {{ variables.ntp }}\n'

async function cluster(test: Test, ...overrides: string[]) {
  const c = await Controller.start(test, ...overrides)
  await c.cluster()
  await c.post('/config/file/chrony', { path: '/etc/chrony.conf', template })
  await c.post('/config/group/compute', { files: ['chrony'], variables: { ntp: 'ntp1' } })
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
  await c.post('/config/node/node002', { group: 'compute' })
  return c
}

/** A token of a node, as its install script has it. */
async function tokenOf(c: Controller, node: string): Promise<string> {
  const { config } = (await c.get(`/config/node/${node}`)).body
  const [{ ipaddress }] = config.node[node].interfaces
  const { text } = await c.get(`/boot/install/${node}`, { token: null, source: ipaddress })
  return /^SVC_TOKEN='?([^'\n]+)/m.exec(text)?.[1] ?? ''
}

/** What tar says of an archive, and the text of each member. */
function unpacked(test: Test, archive: Buffer): { list: string[]; text: (path: string) => string } {
  const directory = scratch(test)
  const tar = (...args: string[]) =>
    execFileSync('tar', args, {
      cwd: directory,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' }
    })
  writeFileSync(join(directory, 'all.tar'), archive)
  return {
    list: tar('-tvf', 'all.tar')
      .split('\n')
      .filter(Boolean)
      .map(line => line.replace(/ +/g, ' ')),
    text: path => tar('-xOf', 'all.tar', path)
  }
}

async function tarOf(c: Controller, node: string, token: string): Promise<Buffer> {
  const { address, port } = c.daemon
  const reply = await fetch(`http://${address}:${port}/boot/files/${node}`, {
    headers: { 'x-access-tokens': token }
  })
  if (reply.status !== 200) throw new Error(`${reply.status} ${await reply.text()}`)
  return Buffer.from(await reply.arrayBuffer())
}

// rules 4.25
t.test('a node fetches its files as one tar with its own token', async t => {
  const c = await cluster(t)
  const secret = { name: 'db', path: '/etc/db', content: Buffer.from('pass ü\n').toString('base64') }
  t.equal((await c.post('/config/secrets/group/compute', [secret])).status, 201)
  await c.post('/config/file/db', {
    path: '/etc/a dir/db.conf',
    owner: 'slurm',
    group: '1234',
    mode: '640',
    template:
      '{% for i in interfaces %}{{ i.interface }}={{ i.ipaddress }}\n{% endfor %}{{ secret.db }}{{ masked }}'
  })
  t.equal((await c.post('/config/node/node001', { files: ['db'] })).status, 204)
  const token = await tokenOf(c, 'node001')
  const archive = await tarOf(c, 'node001', token)
  const { list, text } = unpacked(t, archive)
  t.strictSame(
    list,
    [
      '-rw-r----- slurm/1234 47 1970-01-01 00:00 etc/a dir/db.conf',
      '-rw-r--r-- root/root 22 1970-01-01 00:00 etc/chrony.conf'
    ].map(line => line.replace(' 47 ', ` ${text('etc/a dir/db.conf').length + 1} `))
  )
  t.equal(text('etc/chrony.conf'), 'node node001 ntp ntp1\n')
  t.match(text('etc/a dir/db.conf'), /^BOOTIF=10\.141\.0\.1\npass ü\nFalse$/)
  t.strictSame(await tarOf(c, 'node001', token), archive, 'the same again')
  t.match(
    unpacked(t, await tarOf(c, 'node001', c.token)).text('etc/a dir/db.conf'),
    /\*{8}True$/,
    'for an admin secrets are masked'
  )

  const ask = (node: string, token: string | null) => c.get(`/boot/files/${node}`, { token })
  const renewed = (await ask('node001', token)).headers['x-access-tokens']
  t.equal((await ask('node001', String(renewed))).status, 200, 'the token of the answer is good')
  const day = 86_400_000
  t.notOk((await ask('node001', String(renewed))).headers['x-access-tokens'], 'and not replaced at once')
  c.clockMs = 1.1 * day
  t.ok((await ask('node001', String(renewed))).headers['x-access-tokens'], 'but when it is older than a day')
  c.clockMs = 80 * day
  t.equal((await ask('node001', String(renewed))).status, 200, 'for [auth] running_token_lifetime')
  t.equal((await ask('node001', token)).status, 401, 'that of the installation is not')
  c.clockMs = 0
  t.notOk((await ask('node001', c.token)).headers['x-access-tokens'], 'an admin gets no token of the node')
  t.equal((await ask('node002', token)).status, 403, 'files of another node')
  t.equal((await ask('node001', null)).status, 401)
  t.equal((await ask('none', c.token)).status, 404)
  t.equal((await c.post('/config/node/node001/_delete', {})).status, 204)
  t.equal((await ask('node001', token)).status, 401, 'a deleted node')
})

// rules 4.8, 4.25
t.test(
  'a token that becomes void while its answer waits gets nothing of the next node of that name',
  async t => {
    const c = await cluster(t)
    const loop = (inner: string, deep: number): string =>
      deep === 0 ? inner : `{% for i${deep} in [0,1,2,3,4,5,6,7,8,9] %}${loop(inner, deep - 1)}{% endfor %}`
    await c.post('/config/file/slow', { path: '/etc/a', template: loop('{% set x = 1 %}', 6).repeat(3) })
    await c.post('/config/file/db', { path: '/etc/db', template: '{{ secret.db }}' })
    const make = async (secret: string) => {
      await c.post('/config/node/node003', { group: 'compute', files: ['slow', 'db'] })
      const content = Buffer.from(secret).toString('base64')
      await c.post('/config/secrets/node/node003', [{ name: 'db', path: '/x', content }])
    }
    await make('of the old one')
    const token = await tokenOf(c, 'node003')
    const first = c.get('/boot/files/node003', { token })
    await setTimeout(100)
    t.equal((await c.post('/config/node/node003/_delete', {})).status, 204)
    await make('of the new one')
    const { status, body, headers } = await first
    t.equal(status, 401)
    t.match(body, { message: /token.*node node003 was deleted or renamed/ })
    t.notOk(headers['x-access-tokens'])

    // rules 15.7
    const ofAddress = await tokenOf(c, 'node003')
    const second = c.get('/boot/files/node003', { token: ofAddress })
    await setTimeout(100)
    t.equal((await c.post('/config/node/node003', { trust: 'require' })).status, 204)
    t.match(await second, { status: 401, body: { message: /node node003 was .* has to prove itself/ } })
  }
)

// rules 4.25, 4.12
t.test('previews of files', async t => {
  const c = await cluster(t)
  await c.post('/config/file/broken', { path: '/etc/broken', template: 'a\n{{ variables.none }}' })
  await c.post('/config/node/node001', { files: ['broken'] })
  const { status, body } = await c.get('/config/node/node001/_render/files')
  t.equal(status, 200)
  const usual = { owner: 'root', group: 'root', mode: '0644' }
  t.strictSame(body.config.node.node001.files, [
    {
      name: 'broken',
      path: '/etc/broken',
      ...usual,
      source: 'node',
      problem: "broken:2:14: the map has no item 'none'"
    },
    { name: 'chrony', path: '/etc/chrony.conf', ...usual, source: 'group', text: 'node node001 ntp ntp1\n' }
  ])
  t.equal((await c.get('/config/node/none/_render/files')).status, 404)
})

// rules 4.25
t.test('a file that cannot be rendered names file, line and node, and no tar is sent', async t => {
  const c = await cluster(t)
  const message = async () => {
    const { status, body } = await c.get('/boot/files/node001')
    return `${status} ${body?.message}`
  }
  t.match(await message(), /^200/)
  const rows = [
    ['{# #}\n{{ variables.rack }}', "chrony:2:14: the map has no item 'rack'"],
    ["{% include 'boot/templ_boot_disk.cfg' %}", 'chrony:1:4: there is no template boot/templ_boot_disk.cfg'],
    [
      `{% for i in ${JSON.stringify(Array(20).fill(1))} %}${'x'.repeat(60_000)}{% endfor %}`,
      'chrony: it has 1200000 bytes: 1048576 at most'
    ]
  ] as const
  for (const [template, why] of rows) {
    t.equal((await c.post('/config/file/chrony', { template })).status, 204, template)
    t.match(
      await message(),
      typeof why === 'string' ? `503 node node001: file chrony cannot be rendered: ${why}` : why
    )
  }
  t.equal((await c.post('/config/file/chrony', { template })).status, 204)
  t.match(await message(), /^200/, 'and files are rendered again')
})

// rules 4.25, 3.2
t.test('files are objects: fields, references, members', async t => {
  const c = await cluster(t)
  const before = c.state()
  const post = async (path: string, body: object) => {
    const { status, body: answer } = await c.post(`/config/${path}`, body)
    return `${status} ${answer?.message ?? ''}`
  }
  for (const path of [
    ...['', 'etc/x', '/', '/etc/', '/etc//x', '/etc/./x', '/etc/../x', '/etc/x/..', '/a\nb', '/a\u007f'],
    ...['/dev/sda', '/proc/x', '/sys/x', '/run/x', '/etc/svc/x', '/dev', `/${'x'.repeat(101)}`],
    `/${'x/'.repeat(80)}y`
  ])
    t.match(await post('file/new', { path }), /^400 file new: field "path"/, JSON.stringify(path))
  for (const [field, value] of [
    ...['6444', '888', '44', '04755', 'rwx'].map(mode => ['mode', mode]),
    ...['a b', '-x', 'a:b', '2097151', 'x'.repeat(32), '../x'].flatMap(name => [
      ['owner', name],
      ['group', name]
    ])
  ] as const)
    t.match(await post('file/chrony', { [field as string]: value }), `400 file chrony: field "${field}"`)
  t.match(
    await post('file/chrony', { template: 'a\nb {% if %}' }),
    /^400 file chrony: field "template" is no template: line 2, column 9: /
  )
  t.match(await post('file/chrony', { template: 'x'.repeat(65_537) }), /^400 .*65537 bytes: 65536 at most/)
  for (const owner of ['group/compute', 'node/node001']) {
    t.match(await post(owner, { files: ['none'] }), /^400 .*file none does not exist/)
    t.match(await post(owner, { files: ['chrony', 'chrony'] }), /^400 .*field "files"/)
    t.match(await post(owner, { files: Array.from({ length: 33 }, (_, i) => `f${i}`) }), /^400 .*32 at most/)
  }
  t.match(await post('file/chrony/_delete', {}), /^400 file chrony is in use by 1: group compute/)
  t.strictSame(c.state(), before, 'nothing was stored')

  t.match(await post('file/own', { path: '/etc/own' }), /^201/)
  t.match(await post('group/compute', { files: ['chrony', 'own'] }), /^204/)
  t.match(
    await post('file/own', { path: '/etc/chrony.conf' }),
    /^400 .*compute.*chrony and own have the same path/
  )
  t.match(await post('file/_', {}), /^400/)
  t.match(await post('group/compute', { files: ['chrony'] }), /^204/)
  t.match(await post('file/own', { path: '/etc/chrony.conf', template: 'own' }), /^204/)
  t.match(await post('group/compute', { files: ['chrony', 'own'] }), /^400 .*same path/)
  t.match(await post('node/node001', { files: ['own'] }), /^204/)
  const texts = async (node: string) =>
    (await c.get(`/config/node/${node}/_render/files`)).body.config.node[node].files.map(
      ({ name, source, text }: Record<string, string>) => [name, source, text]
    )
  t.same(await texts('node001'), [['own', 'node', 'own']], "the node's own takes the place of its group's")
  t.same(await texts('node002'), [['chrony', 'group', 'node node002 ntp ntp1\n']])

  t.match(await post('file/chrony', { newfilename: 'time' }), /^204/)
  t.same((await c.get('/config/group/compute')).body.config.group.compute.files, ['time'], 'a rename follows')
  t.same((await c.get('/config/file/time/_member')).body.config.file.time.members, ['node002'], 'rules 3.10')
  t.same((await c.get('/config/file/own/_member')).body.config.file.own.members, ['node001'])
  t.match(await post('file/time/_clone', { newfilename: 'copy' }), /^201/)
  t.same((await c.get('/config/file/copy')).body.config.file.copy, {
    name: 'copy',
    path: '/etc/chrony.conf',
    owner: 'root',
    group: 'root',
    mode: '0644',
    template,
    comment: null
  })
  const exported = await c.get('/config/cluster/export')
  t.equal((await c.post('/config/cluster/import', exported.body)).status, 201)
  t.equal((await c.get('/config/cluster/export')).text, exported.text)
  t.match(await post('group/compute', { files: [] }), /^204/)
  t.match(await post('file/time/_delete', {}), /^204/)
})
