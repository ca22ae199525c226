import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const base64 = (bytes: string | Buffer) => Buffer.from(bytes).toString('base64')
const binary = Buffer.from([0, 255, 10, 39, 128, 1])
const c = await Controller.start(t)
await c.cluster()
await c.post('/config/node/node001', { group: 'compute' })
const ok = async (path: string, body: object) => {
  const { status, text } = await c.post(path, body)
  if (status >= 300) throw new Error(`${path}: ${text}`)
}
const preview = async () => (await c.get('/config/node/node001/_render/files')).body.config.node.node001.files
const secrets = (list: object[]) =>
  ok('/config/secrets/node/node001', { config: { secrets: { node: { node001: list } } } })
const token = async () => {
  const { config } = (await c.get('/config/node/node001')).body
  const source = config.node.node001.interfaces[0].ipaddress
  const { text } = await c.get('/boot/install/node001', { token: null, source })
  return { text, token: /^SVC_TOKEN='?([^'\n]+)/m.exec(text)?.[1] ?? '' }
}
const tar = async () => {
  const { address, port } = c.daemon
  const headers = { 'x-access-tokens': (await token()).token }
  const reply = await fetch(`http://${address}:${port}/boot/files/node001`, { headers })
  return { status: reply.status, body: Buffer.from(await reply.arrayBuffer()) }
}

// rules 4.25
t.test('a preview shows what the node gets, or says that it gets nothing', async t => {
  await secrets([
    { name: 'word', path: '/a', content: base64('hunter2') },
    { name: 'number', path: '/b', content: base64('42') },
    { name: 'bytes', path: '/c', content: base64(binary) }
  ])
  await ok('/config/node/node001', { files: [] })
  const rows: readonly (readonly [template: string, shown: object])[] = [
    ['plain', { text: 'plain' }],
    ['{{ secret.word }}', { text: '********' }],
    ['{{ secret.none }}', { problem: /^f:1:11: the map has no item 'none'$/ }],
    [
      'a\n{{ secret.bytes }}',
      {
        problem:
          /^f:2:11: the map has no item 'bytes': secret bytes is no text in UTF-8; give the secret itself/
      }
    ],
    // What fails with the secret alone is told by its place; the message would hold the secret.
    [
      '{{ variables[secret.word] }}',
      { problem: /^f:1:\d+: it cannot be rendered with the node's own secrets$/ }
    ],
    [
      "{% if secret.word == '********' %}x{% else %}{{ variables.none }}{% endif %}",
      { problem: /own secrets$/ }
    ],
    // And what fails with the mask alone is no fault of the file.
    [
      "{% if secret.word == '********' %}{{ variables.none }}{% else %}x{% endif %}",
      { problem: /^the node gets it, but with masked secrets it cannot be shown: f:1:/ }
    ]
  ]
  for (const [template, shown] of rows) {
    await ok('/config/file/f', { path: '/etc/f', template })
    await ok('/config/node/node001', { files: ['f'] })
    const [file] = await preview()
    t.match(file, shown, template)
    t.notMatch(JSON.stringify(file), /hunter2/)
    const node = await tar()
    const isThere = 'text' in shown || String((shown as { problem: RegExp }).problem).includes('gets it')
    t.equal(node.status, isThere ? 200 : 503, template)
  }
  await c.post('/config/node/node001', { files: [] })
})

// rules 4.25
t.test('files have modes of four digits, are directories and links, and hold bytes', async t => {
  const files = {
    'a-bytes': { path: '/usr/local/bin/tool', content: base64(binary), mode: '4755' },
    'b-dir': { path: '/var/spool/x', kind: 'directory', owner: 'slurm', mode: '2775' },
    'c-dir': { path: '/var/spool/y', kind: 'directory' },
    'd-link': { path: '/etc/localtime', kind: 'link', target: '../usr/share/zoneinfo/UTC' },
    'e-top': { path: '/data', kind: 'link', target: '/mnt/data' }
  }
  for (const [name, file] of Object.entries(files)) await ok(`/config/file/${name}`, file)
  await ok('/config/node/node001', { files: Object.keys(files) })
  const { status, body } = await tar()
  t.equal(status, 200)
  const directory = scratch(t)
  writeFileSync(join(directory, 'all.tar'), body)
  const run = (...args: string[]) => execFileSync('tar', args, { cwd: directory })
  const list = String(run('-tvf', 'all.tar')).replaceAll(/ +/g, ' ')
  for (const line of [
    /-rwsr-xr-x root\/root 6 .* usr\/local\/bin\/tool\n/,
    /-rwxrwsr-x slurm\/root 0 .* var\/spool\/x\/\.svc-directory\n/,
    /-rwxr-xr-x root\/root 0 .* var\/spool\/y\/\.svc-directory\n/,
    /-rw-r--r-- root\/root 25 .* etc\/\.svc-link\.localtime\n/,
    /-rw-r--r-- root\/root 9 .* \.svc-link\.data\n/
  ])
    t.match(list, line)
  t.same(run('-xOf', 'all.tar', 'usr/local/bin/tool'), binary)
  t.equal(String(run('-xOf', 'all.tar', '.svc-link.data')), '/mnt/data')
  t.match(await preview(), [
    { name: 'e-top', kind: 'link', target: '/mnt/data' },
    { name: 'd-link', kind: 'link' },
    { name: 'a-bytes', mode: '4755', content: base64(binary) },
    { name: 'b-dir', kind: 'directory', mode: '2775' },
    { name: 'c-dir', kind: 'directory', mode: '0755' }
  ])
  const before = c.state()
  const long = `/${'d'.repeat(70)}/${'d'.repeat(70)}/${'d'.repeat(20)}`
  for (const [body, said] of [
    [{ path: '/x', kind: 'link' }, '"target" is missing: a link needs it'],
    [{ path: '/x', target: '/y' }, '"target" belongs to a link, not to a file'],
    [{ path: '/x', kind: 'link', target: 'a\nb' }, '"target" must be a path of 1 to 1024 bytes'],
    [{ path: '/x', kind: 'link', target: 'x'.repeat(1025) }, '"target" must be'],
    [{ path: '/x', kind: 'directory', template: 'x' }, '"template" belongs to a file'],
    [
      { path: '/x', kind: 'link', target: 'y', content: 'AAAA' },
      '"content" belongs to a file, not to a link'
    ],
    [{ path: '/x', template: 'x', content: 'AAAA' }, '"content" and "template" do not go together'],
    [{ path: '/x', content: 'no base64' }, '"content" must be valid base64'],
    [{ path: '/x', content: base64(Buffer.alloc(524_289)) }, '"content" has 524289 bytes: 524288 at most'],
    [{ path: '/x', kind: 'socket' }, '"kind" must be one of file, directory, link'],
    [{ path: '/x/.svc-directory' }, '"path" has a name that begins with .svc-'],
    [{ path: '/.svc-x/y' }, '"path" has a name that begins with .svc-'],
    [{ path: long, kind: 'directory' }, '"path" is too long by'],
    [{ path: `/${'n'.repeat(91)}`, kind: 'link', target: 'x' }, '"path" is too long by 1 bytes for a link'],
    [{ path: '/x', mode: '08' }, '"mode" must be three or four octal digits'],
    [{ path: '/x', mode: '2644' }, 'setuid and setgid mean nothing'],
    [{ path: '/x', mode: '12755' }, '"mode" must be three or four octal digits']
  ] as const) {
    const { status, body: answer } = await c.post('/config/file/bad', body)
    t.equal(status, 400, said)
    t.ok(answer.message.includes(said), `${answer.message}: ${said}`)
  }
  t.same(c.state(), before)
  await c.post('/config/node/node001', { files: [] })
})

// rules 5.5
t.test('secrets have an owner, a group and a mode', async t => {
  const one = async () =>
    (await c.get('/config/secrets/node/node001/munge')).body.config.secrets.node.node001[0]
  await secrets([
    { name: 'munge', path: '/etc/munge/munge.key', content: base64(binary), owner: 'munge', mode: '400' }
  ])
  t.same(await one(), {
    ...{ name: 'munge', path: '/etc/munge/munge.key', content: base64(binary) },
    ...{ owner: 'munge', mode: '0400' }
  })
  const lineOf = async () => /^ *place_secret '\/etc\/munge.*$/m.exec((await token()).text)?.[0].trim()
  t.equal(
    await lineOf(),
    `place_secret '/etc/munge/munge.key' '${base64(binary)}' '0400 munge 0' || return 1`
  )
  await secrets([{ name: 'munge', group: 'munge', path: '/etc/munge/key' }])
  t.match(
    await one(),
    { owner: 'munge', group: 'munge', mode: '0400', path: '/etc/munge/key' },
    'the rest stays'
  )
  const before = c.state()
  await ok('/config/secrets/node/node001', (await c.get('/config/secrets/node/node001')).body)
  t.same(c.state(), before)
  const { text } = await c.get('/config/cluster/export')
  t.equal((await c.post('/config/cluster/import', text)).status, 201)
  t.equal((await c.get('/config/cluster/export')).text, text)
  await ok('/config/secrets/node/node001/munge/_clone', { newsecretname: 'copy' })
  t.match((await c.get('/config/secrets/node/node001/copy')).body.config.secrets.node.node001, [
    { owner: 'munge' }
  ])
  for (const [entry, said] of [
    [{ owner: 'a b' }, '"owner" must be a name'],
    [{ owner: 'a:b' }, '"owner" must be a name'],
    [{ group: '-R' }, '"group" must be a name'],
    [{ mode: '999' }, '"mode" must be three or four'],
    [{ mode: 400 }, '"mode" must be'],
    [{ path: null }, '"path" must not be empty']
  ] as const) {
    const { status, body } = await c.post('/config/secrets/node/node001/munge', { name: 'munge', ...entry })
    t.equal(status, 400, said)
    t.ok(body.message.includes(said), `${body.message}: ${said}`)
  }
  await secrets([{ name: 'munge', owner: null, group: 'root', mode: '0600' }])
  t.same(Object.keys(await one()), ['name', 'path', 'content'], 'the defaults are not stored')
})
