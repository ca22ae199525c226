import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { outcomeLines } from '../../lib/ctl/render.js'
import { yamlLines } from '../../lib/ctl/session.js'
import { addNode, bmcCluster } from '../support/bmc-cluster.js'
import { builtTree, onTerminal } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { output } from '../support/programs.js'
import { clientHere, svcctlFor } from '../support/svcctl.js'

const c = await Controller.start(t)
const directory = t.testdir({ node: {}, editor: {} })
const env = svcctlFor(join(directory, 'node'), c)
await c.post('/config/network/lab', { network: '10.150.0.0/16' })
await c.post('/config/group/compute', {
  domain: 'lab',
  variables: { rack: '7' },
  interfaces: [{ interface: 'BOOTIF', network: 'lab' }]
})
for (const i of [1, 2, 3]) await c.post(`/config/node/node00${i}`, { group: 'compute' })

interface Person {
  /** Typed to questions, one after the other; a function runs first, and says yes. */
  readonly types?: (string | (() => Promise<unknown>))[]
  /** Each changes the text of one opening of the editor. */
  readonly edits?: ((text: string) => string | Promise<string>)[]
}
/** One run in this process, with what a person does. */
const run = (args: readonly string[], { types, edits = [] }: Person = {}) => {
  const answers = async () => {
    const next = types?.shift()
    if (typeof next !== 'function') return next ?? ''
    await next()
    return 'y'
  }
  return clientHere(args, env, {
    edits: text => (edits.shift() ?? (same => same))(text),
    ...(types === undefined ? {} : { answers })
  })
}
async function ok(t: Test, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(args)
  t.same([code, stderr], [0, ''], args.join(' '))
  return stdout
}
const node = async (name: string) => (await c.get(`/config/node/${name}`)).body.config.node[name]

t.test('a disk layout that comes with svcd', async t => {
  t.match(await ok(t, 'disklayout', 'add', 'raid1', '--shipped', 'comment=mine'), 'disk layout raid1 created')
  const made = async () => (await c.get('/config/disklayout/raid1')).body.config.disklayout.raid1
  t.match(await made(), { comment: 'mine', disks: [{ name: 'system', count: 2 }] })
  for (const args of [
    ['disklayout', 'add', 'raid9', '--shipped'],
    ['group', 'add', 'raid1', '--shipped']
  ]) {
    const { code, stderr } = await run(args)
    t.equal(code, 2)
    t.match(stderr, '--shipped makes one of the disk layouts whole-disk, raid1, raid1-lvm')
  }
  const edits = [(text: string) => text.replace('"count": 2', '"count": 3')]
  const edited = await run(['disklayout', 'edit', 'raid1'], { types: ['y'], edits })
  t.equal(edited.code, 0, edited.stderr)
  t.match(await made(), { disks: [{ count: 3 }] })
  for (const text of ['{"name":"x"}', '[{"name":]'])
    t.match(await run(['disklayout', 'set', 'raid1', `disks=${text}`]), {
      code: 2,
      stderr: `disks must be a list of disks, and this is no JSON list: ${text}`
    })
  await c.post('/config/osimage/bare', {})
  await c.post('/config/node/node001', { disklayout: 'raid1', osimage: 'bare' })
  t.match(await ok(t, 'node', 'preview', 'node001', 'partscript'), /^layout='raid1'$/m)
  await c.post('/config/node/node001', { disklayout: null, osimage: null })
})

// rules 14.8
t.test('the same verbs by the names that other programs have, and fields as options', async t => {
  t.equal(
    await ok(t, 'network', 'create', 'other', '--network=10.151.0.0/16', 'comment=x'),
    'network other created\n'
  )
  t.match(await ok(t, 'network', 'get', 'other'), /^network +10\.151\.0\.0\/16$/m)
  t.equal(await ok(t, 'network', 'ls', '--fields=name', '--sort=-name'), 'name\nother\nlab\n')
  await ok(t, 'network', 'set', 'other', '--comment=a=b --c')
  t.match(await ok(t, 'network', 'show', 'other'), /^comment +a=b --c$/m)
  t.equal(await ok(t, 'network', 'delete', 'other'), 'network other deleted\n')
  await ok(t, 'node', 'set', 'node00*', '--variables.rack=8', '--BOOTIF.options=mtu=9000')
  t.match(await node('node003'), { variables: { rack: '8' }, interfaces: [{ options: 'mtu=9000' }] })
  await ok(t, 'node', 'set', 'node00*', 'variables.rack=', 'BOOTIF.options=')
  const wrong: [string[], RegExp][] = [
    [
      ['node', 'set', 'node001', '--commet=x'],
      /a node has no field commet \(did you mean comment\?\)|commet/
    ],
    [['node', 'list', '--comment=x', 'y'], /usage: svcctl node list \[SET\]/],
    [['node', 'set', 'node001', '--dryrun=yes'], /--dryrun/],
    [['node', 'delte', 'x'], /unknown verb delte \(did you mean "delete"\?\)/],
    [['nodes', 'a', 'b'], /usage: svcctl nodes \[SET\]/],
    [['audit', 'people'], /audit takes users, machines, not people/],
    [
      ['node', 'preview', 'node001', 'all'],
      /preview takes boot, install, kickstart, partscript, files, not all/
    ],
    [['node', 'edit', 'node*'], /edit takes one node/]
  ]
  for (const [args, message] of wrong)
    t.match(await run(args), { code: 2, stdout: '', stderr: message }, args.join(' '))
  const help = await ok(t, '--help')
  for (const line of [/^ {2}list, ls \[SET\]/m, /^ {2}nodes \[SET\]/m, /^ {2}audit /m, /json, csv or yaml/])
    t.match(help, line)
})

// rules 14.8
t.test('short tables, interfaces, previews, the audit log', async t => {
  t.equal(
    await ok(t, 'nodes', 'node*[1-1]'),
    'name     status  group    osimage  BOOTIF.ipaddress\nnode001  -       compute  -        10.150.0.1\n'
  )
  t.equal(await ok(t, 'nodes', '--fields', 'name', '-o', 'csv'), 'name\r\nnode001\r\nnode002\r\nnode003\r\n')
  await ok(t, 'group', 'set', 'compute', 'ib0.network=lab')
  t.match(await ok(t, 'group', 'rminterface', 'compute', 'ib0', '--dryrun'), /^dry run, nothing was changed/)
  t.equal((await c.get('/config/group/compute')).body.config.group.compute.interfaces.length, 2)
  await ok(t, 'group', 'rminterface', 'compute', 'ib0')
  t.equal((await c.get('/config/group/compute')).body.config.group.compute.interfaces.length, 1)
  t.match(await run(['node', 'rminterface', 'node001', 'nothing']), { code: 1, stderr: /nothing/ })
  t.match(await ok(t, 'node', 'preview', 'node001', 'boot'), /^#!ipxe/)
  t.match(JSON.parse(await ok(t, 'node', 'preview', 'node001', 'boot', '-o', 'json')), { boot: /^#!ipxe/ })
  t.match(JSON.parse(await ok(t, 'node', 'preview', 'node001', 'files', '-o', 'json')), {
    config: { node: {} }
  })
  await c.post('/config/file/motd', { path: '/etc/motd', mode: '0640', template: 'node {{ node }}\n' })
  await c.post('/config/file/wrong', { path: '/etc/wrong', template: '{{ variables.nothing }}\n' })
  await c.post('/config/node/node001', { files: ['motd', 'wrong'] })
  const files = await run(['node', 'preview', 'node001', 'files'])
  t.match(files, { code: 1, stderr: /1 of 2 files of node node001 cannot be rendered/ })
  t.match(
    files.stdout,
    /^\/etc\/wrong {2}root:root {2}0644\ncannot be rendered: .*nothing.*\n\/etc\/motd {2}root:root {2}0640\nnode node001\n$/
  )
  await c.post('/config/node/node001', { files: [] })
  await ok(t, 'node', 'set', 'node002', 'comment=heard')
  const [first = ''] = (await ok(t, 'audit')).split('\n')
  t.match(first, /^20\S+Z {2}user admin {2}127\.0\.0\.1 {2}update {2}node {2}node002 {2}comment: heard$/)
  t.equal(await ok(t, 'audit', 'machines'), '')
  t.match(JSON.parse(await ok(t, 'audit', '-o', 'json')).audit[0], { name: 'node002' })
})

// rules 14.8
t.test('scripts are told as texts, files without theirs, and a table can be imported again', async t => {
  const script = ['#!/bin/sh', 'echo a', ''].join('\n')
  const told = await ok(t, 'group', 'set', 'compute', `postscript=${script}`, '--dryrun')
  t.match(told, /^ {2}postscript:\n {4}\+ #!\/bin\/sh\n {4}\+ echo a$/m)
  await ok(t, 'group', 'set', 'compute', `postscript=${script}`)
  t.match(await ok(t, 'audit'), /postscript: #!\/bin\/sh\\u000aecho a/)
  const change = await ok(t, 'group', 'set', 'compute', `postscript=${script.replace('a', 'b')}`, '--dryrun')
  t.match(change, /^ {2}postscript:\n {4}- echo a\n {4}\+ echo b$/m)
  t.equal(
    await ok(t, 'file', 'ls'),
    'name   path        kind  owner  group  mode  comment\n' +
      'motd   /etc/motd   -     root   root   0640  -\n' +
      'wrong  /etc/wrong  -     root   root   0644  -\n'
  )
  const table = await ok(t, 'node', 'list', '-o', 'csv')
  t.match(table, /""interface"":""BOOTIF"",""network"":""lab"",""ipaddress"":""10.150.0.1""/)
  const file = join(directory, 'nodes.csv')
  writeFileSync(file, table)
  t.equal(await ok(t, 'import', file, '--dryrun'), 'dry run, nothing was changed: nothing differs\n')
  writeFileSync(file, table.replace('10.150.0.1', '10.150.0.111'))
  t.match(await ok(t, 'import', file, '--dryrun'), /BOOTIF.ipaddress: 10.150.0.1 -> 10.150.0.111/)
  await ok(t, 'group', 'set', 'compute', 'postscript=')
})

t.test('a group in the place of a set: the @ is asked about', async t => {
  const meant = /^svcctl: node compute does not exist \(did you mean @compute\?\)/
  for (const words of ['power compute on', 'set compute comment=x', 'list compute', 'why compute'])
    t.match(await run(['node', ...words.split(' ')]), { code: 1, stdout: '', stderr: meant }, words)
  t.match(await run(['node', 'show', 'other']), { stderr: 'svcctl: node other does not exist\n' })
})

// rules 14.8
t.test('an object is edited, shown, and changed after a question', async t => {
  const script = '#!/bin/sh\n\n  echo "a"\n'
  await c.post('/config/group/compute', { postscript: Buffer.from(script).toString('base64') })
  await c.post('/config/node/node001', { prescript: Buffer.from(script).toString('base64'), comment: '@x' })
  const all = () => c.get('/config/node').then(({ text }) => text)
  const before = await all()
  let seen = ''
  const nothing = await run(['node', 'edit', 'node001'], { types: [], edits: [text => (seen = text)] })
  t.match(nothing, { code: 1, stderr: /nothing was edited/ })
  t.match(seen, /^group=compute$/m)
  t.match(seen, /^comment=@x$/m)
  t.match(seen, /^prescript=\n {4}#!\/bin\/sh\n {4}\n {6}echo "a"$/m)
  t.match(seen, /^# \(group\) postscript=\n# \(group\) {5}#!\/bin\/sh$/m)
  t.match(seen, /^# \(group\) domain=lab$/m)
  t.match(seen, /^# \(group\) variables\.rack=7$/m)
  t.match(seen, /^BOOTIF\.ipaddress=10\.150\.0\.1$/m)
  const edit = (text: string) =>
    text
      .replace('comment=@x', 'comment=@y=z')
      .replace('# (group) domain=lab', 'domain=own')
      .replace('      echo "a"', '\n    echo b\n    # c')
      .replace(/^# \(group\) variables.rack=7$/m, 'variables.rack=-')
      .replace('BOOTIF.ipaddress=10.150.0.1', 'BOOTIF.ipaddress=10.150.0.9')
  const dry = await run(['node', 'edit', 'node001', '--dryrun'], { types: [], edits: [edit] })
  t.match(dry, { code: 0, stdout: /^dry run, nothing was changed: 1 node would be changed\n/ })
  t.match(await run(['node', 'edit', 'node001'], { types: ['n', 'n'], edits: [edit] }), {
    ...{ code: 1, stdout: '' },
    stderr:
      /node node001 would be changed:\n.*Change this\? \[y\/N\] Edit it again\? .*nothing was changed\n$/s
  })
  t.match(await run(['node', 'edit', 'node001'], { edits: [edit] }), {
    code: 2,
    stderr: /no terminal.*--yes/
  })
  t.equal(await all(), before)
  // What was typed is not lost by a slip: the editor has it again.
  let again = ''
  const slip = (text: string) => edit(text).replace('netboot', 'nteboot').replace('domain=own', 'domian=own')
  const mended = (text: string) => {
    again = text
    return text.replace('domian', 'domain')
  }
  const done = await run(['node', 'edit', 'node001'], { types: ['y', 'y'], edits: [slip, mended] })
  t.match(done, {
    code: 0,
    stdout: /^node node001 updated\n/,
    stderr: /has no field domian.*Edit it again\?/s
  })
  t.match(again, /^comment=@y=z$/m)
  const now = await node('node001')
  t.match(now, { comment: '@y=z', domain: 'own', variables: { rack: '-' } })
  t.equal(now.interfaces[0].ipaddress, '10.150.0.9')
  t.equal(Buffer.from(now.prescript, 'base64').toString(), '#!/bin/sh\n\n\necho b\n# c\n')
  // A line that is taken away unsets its field.
  await run(['node', 'edit', 'node001', '--yes'], {
    edits: [
      text =>
        text.replace(/^(?:domain|comment|variables)[^\n]*\n/gm, '').replace(/^prescript=\n(?: {4}.*\n)+/m, '')
    ]
  })
  t.match(await node('node001'), { comment: null, domain: 'lab', variables: { rack: '7' }, prescript: '' })
  const wrong: [(text: string) => string, RegExp][] = [
    [text => `${text}\nnonsense`, /line \d+: nonsense: FIELD=VALUE is needed/],
    [text => `${text}\ncomment=b`, /comment=b: given twice/],
    [
      text => text.replace('netboot=yes', 'netboot=maybe').replace('# (default) netboot', 'netboot'),
      /yes or no/
    ],
    [text => text.replace('group=compute', 'group=nowhere'), /nowhere/]
  ]
  for (const [edit, message] of wrong)
    t.match(await run(['node', 'edit', 'node001', '--yes'], { edits: [edit] }), {
      code: /1|2/,
      stderr: message
    })
  await c.post('/config/node/node001', {
    comment: null,
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.150.0.1' }]
  })
  t.match(await run(['node', 'edit', 'nobody'], { types: [] }), { code: 1, stderr: /nobody/ })
})

// rules 2.21, 14.8
t.test('an edit that somebody else was faster than changes nothing, and its text is kept', async t => {
  await c.post('/config/bmcsetup/boards', { username: 'root', password: 'calvin', comment: 'old' })
  const boards = async () => (await c.get('/config/bmcsetup/boards')).body.config.bmcsetup.boards
  const mine = (text: string) => text.replace('comment=old', 'comment=mine')
  const theirs = { comment: 'theirs', password: 'hobbes', userid: 3 }
  // In the editor: the dry run tells it. At the question: the change does.
  const faster = async () => {
    await c.post('/config/bmcsetup/boards', theirs)
    return undefined
  }
  const moments = [
    { edits: [async (text: string) => mine(text).slice(0, await faster())], types: [] },
    { edits: [mine], types: [faster] }
  ]
  for (const [i, { edits, types }] of moments.entries()) {
    await c.post('/config/bmcsetup/boards', { comment: 'old', password: 'calvin', userid: null })
    const { code, stdout, stderr } = await run(['bmcsetup', 'edit', 'boards'], { types, edits })
    t.strictSame([code, stdout], [1, ''], `${i}: ${stderr}`)
    t.match(
      stderr,
      /- userid=2\n- password=\*{8}\n- comment=old\n\+ userid=3\n\+ password=\*{8}\n\+ comment=theirs\n/
    )
    t.notMatch(stderr, /calvin|hobbes/, 'no password')
    const [, file = ''] =
      /nothing was changed\. Your text is in (\S+); type: svcctl bmcsetup edit boards\n$/.exec(stderr) ?? []
    t.match(readFileSync(file, 'utf8'), /^comment=mine$/m)
    t.equal(statSync(file).mode & 0o777, 0o600, 'for nobody else')
    rmSync(dirname(file), { recursive: true })
    t.match(await boards(), theirs, 'nothing was changed')
  }
  const again = (text: string) => text.replace('comment=theirs', 'comment=mine')
  t.match(await run(['bmcsetup', 'edit', 'boards'], { types: ['y'], edits: [again] }), { code: 0 })
  t.match(await boards(), { ...theirs, comment: 'mine' })
})

// rules 14.8
t.test('an edit of what somebody else has removed names the file of its text', async t => {
  await c.post('/config/bmcsetup/gone', { comment: 'old' })
  const edit = async (text: string) => {
    await c.post('/config/bmcsetup/gone/_delete', {})
    return text.replace('comment=old', 'comment=mine')
  }
  const { code, stderr } = await run(['bmcsetup', 'edit', 'gone'], { types: [], edits: [edit] })
  t.equal(code, 1)
  const [, file = ''] = /Your text is in (\S+);/.exec(stderr) ?? []
  t.match(stderr, /gone.*nothing was changed/)
  t.match(readFileSync(file, 'utf8'), /^comment=mine$/m)
  rmSync(dirname(file), { recursive: true })
})

// rules 14.8
t.test('the editor is a program with its arguments; its text is for nobody else', async t => {
  const editor = join(directory, 'editor', 'it')
  writeFileSync(
    editor,
    '#!/bin/sh\nstat -c "%a %U" "$3" "$(dirname "$3")"\necho "$1 $2"\nsed -i "s/^comment=.*/comment=of $1 $2/" "$3"\n'
  )
  chmodSync(editor, 0o755)
  const edit = (more: object) =>
    start('svcctl', ['node', 'edit', 'node002', '--yes'], { input: '', env: { ...env, VISUAL: '', ...more } })
      .ended
  const done = await edit({ EDITOR: `${editor}  one $(id)` })
  t.match(done, { code: 0, stdout: /^600 root\n700 root\none \$\(id\)\n.*node node002 updated\n$/s })
  t.equal((await node('node002')).comment, 'of one $(id)')
  t.match(await edit({ EDITOR: 'false' }), { code: 1, stderr: /nothing was changed: false .*ended with 1/ })
  t.match(await edit({ EDITOR: '/nowhere/vi' }), {
    code: 1,
    stderr: /nothing was changed: \/nowhere\/vi .*ENOENT/
  })
  t.equal((await node('node002')).comment, 'of one $(id)')
  const asked = onTerminal(
    'env',
    ...Object.entries({ ...env, EDITOR: `${editor} two x` }).map(([k, v]) => `${k}=${v}`),
    'svcctl',
    'node',
    'edit',
    'node002'
  )
  await asked.says('Change this? [y/N] ')
  asked.type('y\r')
  t.match(await asked.ended, { code: 0, stdout: /node node002 updated/ })
  t.equal((await node('node002')).comment, 'of two x')
})

/** What Python reads from YAML, and from JSON, of the same values. */
const load = `import json, sys, yaml
for line in sys.stdin:
  given = json.loads(line)
  if yaml.safe_load(given["yaml"]) != given["value"]: sys.exit("differs: " + line + repr(yaml.safe_load(given["yaml"])))
`
t.test('YAML says what the JSON says, to a parser of another maker', async t => {
  await output('python3', ['-c', 'import yaml'])
  const same = async (values: unknown[]) => {
    const lines = values
      .map(one => ({ value: one }))
      .map(value => JSON.stringify({ value, yaml: [...yamlLines(value as never), ''].join('\n') }))
    const { code, stderr } = await start('python3', ['-c', load], { input: lines.join('\n') }).ended
    t.equal(code, 0, stderr)
  }
  const texts = [
    ...[
      '',
      'a',
      'no',
      'Yes',
      'null',
      '~',
      '12',
      '1e3',
      '0x1f',
      '1.5',
      '52:54:00:00:00:01',
      '2026-01-01',
      '10.1.1.1'
    ],
    ...[
      '- a',
      'a: b',
      'a #b',
      '#a',
      '@a',
      '`a',
      '*a',
      '&a',
      '!a',
      '%a',
      '[a',
      '{a',
      '"a',
      "'a",
      'a ',
      ' a',
      '=',
      '<<'
    ],
    ...[
      'a\n',
      'a\nb',
      'a\n\nb\n\n',
      '\na\n',
      '  a\nb\n',
      '\n',
      '\n\n',
      ' \n a',
      'a\tb\n',
      '\ta\n',
      'a\r\nb\n',
      'a: |\n  b\n'
    ],
    ...[
      '\u0000',
      '\u0085a\n',
      '\u2028',
      '\ufeffa',
      'é ü\n漢\n',
      '#!/bin/sh\necho "a: b" # c\n',
      'a\n \nb\n',
      '---\n',
      '...\na'
    ]
  ]
  await same(
    texts.flatMap(text => [
      text,
      [text],
      { [text]: text },
      { a: [{ b: text, c: [text, []] }, [[text]]], d: {} }
    ])
  )
  const values: unknown[] = []
  const string = fc.string({ unit: fc.constantFrom(...' \n:#-|>"\'a1é[]{},&*!%@`~?\t'), maxLength: 12 })
  const { tree } = fc.letrec(tie => ({
    tree: fc.oneof(
      { maxDepth: 3 },
      ...[string, fc.boolean(), fc.integer(), fc.constant(null)],
      fc.array(tie('tree'), { maxLength: 3 }),
      fc.dictionary(string, tie('tree'), { maxKeys: 3, noNullPrototype: true })
    )
  }))
  fc.assert(
    fc.property(tree, value => void values.push(value)),
    { numRuns: 2000 }
  )
  await same(values)
  const shown = await ok(t, 'node', 'show', 'node001', '-o', 'yaml')
  t.match(shown, /^config:\n {2}node:\n {4}node001:\n {6}name: node001\n/)
  t.match(shown, /^ {6}interfaces:\n {8}- interface: BOOTIF\n {10}\w+: /m)
  t.match(shown, /^ {10}ipaddress: "10\.150\.0\.1"$/m)
  t.match(await ok(t, 'node', 'list', '-o', 'yaml', '--fields', 'name'), /^ {4}node003:\n {6}name: node003$/m)
  t.match(await ok(t, 'node', 'set', 'node003', 'comment=x', '-o', 'yaml'), 'message: node node003 updated\n')
  t.match(await run(['node', 'secrets', 'node001', '-o', 'yaml']), { code: 0 })
})

t.test(
  'a dry run of power names the nodes and asks no BMC; failures are told without the address',
  async t => {
    await bmcCluster(c)
    for (const i of [1, 2]) await addNode(c, `b${i}`, `127.7.0.${i}`)
    const jobs = async () => (await c.get('/monitor/request')).text
    const before = await jobs()
    t.equal(
      await ok(t, 'node', 'power', 'b1', 'off', '--dryrun'),
      'dry run, nothing was done: power off of 1 node: b1\n'
    )
    t.equal(
      await ok(t, 'node', 'power', '@compute', 'reset', '--dryrun'),
      'dry run, nothing was done: power reset of 2 nodes: b[1-2]; no address of a BMC, so that it would fail: 3 nodes: node[001-003]\n'
    )
    // rules 12.7
    await ok(t, 'node', 'set', 'b2', 'partscript=mount /dev/vda /sysroot', 'netboot=yes')
    for (const action of ['on', 'boot', 'cycle', 'reset'])
      t.match(
        await ok(t, 'node', 'power', 'b[1-2]', action, '--dryrun'),
        /; a boot from the network writes to the disk of 1 node: b2\n$/
      )
    t.notMatch(await ok(t, 'node', 'power', 'b2', 'off', '--dryrun'), /disk/)
    await ok(t, 'node', 'set', 'b2', 'netboot=no')
    t.notMatch(await ok(t, 'node', 'power', 'b2', 'boot', '--dryrun'), /disk/)
    t.match(JSON.parse(await ok(t, 'node', 'sel', 'b*', 'clear', '--dryrun', '-o', 'json')), {
      nodes: ['b1', 'b2']
    })
    t.match(await run(['node', 'power', 'nobody', 'off', '--dryrun']), { code: 1, stderr: /nobody/ })
    t.equal(await jobs(), before)
    const lines = (messages: Record<string, string>) => [
      ...outcomeLines(
        new Map(Object.entries(messages).map(([name, message]) => [name, { failed: true, message }])),
        (_, text) => text
      )
    ]
    t.same(lines({ b1: '127.7.0.1: no answer', b2: '127.7.0.2: no answer', b3: '127.7.0.3: refused' }), [
      'b[1-2]: failed: no answer',
      'b3: failed: 127.7.0.3: refused'
    ])
    t.same(lines({ b1: 'fd00::1: connect 1.2.3.4:623 of b1', b2: 'fd00::2: connect 1.2.3.5:623 of b2' }), [
      'b[1-2]: failed: connect ADDRESS:623 of the node'
    ])
  }
)

// rules 14.5, 14.8
t.test('grab and push are followed; a group is asked about', async t => {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`)
    const json = (body: object) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    if (request.url?.startsWith('/config/status'))
      json({ request_id: '7', state: 'done', progress: 1, message: 'new /etc/a;;deleted /etc/\u001bb' })
    else if (request.method === 'POST')
      json({ request_id: '7', state: 'queued', progress: 0, message: 'queued' })
    else
      json({
        config: { node: { node001: {}, node002: {}, ...(grows && seen++ > 0 ? { node003: {} } : {}) } }
      })
  })
  let grows = false
  let seen = 0
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const on = ['--url', `http://127.0.0.1:${(server.address() as AddressInfo).port}`]
  t.equal(
    await ok(t, 'node', 'grab', 'node001', 'debian', '--dryrun', ...on),
    'queued\nnew /etc/a\ndeleted /etc/\\u001bb\n'
  )
  t.equal(await ok(t, 'node', 'push', 'node001', 'debian', ...on), 'push of node node001: done\n')
  const push = ['group', 'push', 'compute', 'debian']
  const question =
    'Make the same as OS image debian, and delete what it does not hold, on 2 nodes: node[001-002]? [y/N] '
  t.same(await run([...push, ...on], { types: ['n'] }), {
    ...{ code: 1, stdout: '' },
    stderr: `${question}svcctl: nothing was pushed\n`
  })
  t.match(await run([...push, ...on]), { code: 2, stderr: /nothing was pushed: .* use --yes/ })
  t.match(await run([...push, ...on], { types: ['y'] }), { code: 0, stdout: 'push of group compute: done\n' })
  grows = true
  t.match(await run([...push, ...on], { types: ['y'] }), {
    ...{ code: 1, stdout: '' },
    stderr: /group compute has other nodes than those of the question: nothing was pushed/
  })
  t.same(
    asked.filter(one => one.startsWith('POST')),
    [
      'POST /config/node/node001/_osgrab?dryrun=yes',
      'POST /config/node/node001/_ospush',
      'POST /config/group/compute/_ospush'
    ]
  )
  // rules 14.5
  for (const args of [
    ['node', 'rescue', '@failed', '--dryrun'],
    ['node', 'reinstall', '@stale:yes', '--yes'],
    ['node', 'rm', '@failed', '--yes'],
    ['node', 'power', '@failed', 'off', '--yes']
  ])
    t.match(await run(args), {
      ...{ code: 1, stdout: '' },
      stderr: `svcctl: ${args[2]} names no node: nothing was done\n`
    })
  t.match(await run(['node', 'grab', 'node001', 'none']), { code: 1, stdout: '', stderr: /none/ })
})

t.test('node sets are completed', async t => {
  await c.post('/config/osimage/rocky9', {})
  // A person waits two seconds for names; a busy machine may take longer.
  const script = `timeout() { shift; "$@"; }
    eval "$(svcctl completion bash)"
    for line in "$@"; do
      COMP_LINE=$line COMP_POINT=\${#line}; read -ra COMP_WORDS <<<"$line"; COMPREPLY=()
      _svcctl; echo "\${COMPREPLY[*]}"
    done`
  const lines: [string, string][] = [
    ['svcctl node power @', 'all failed osimage: stale:yes status: trust: compute'],
    ['svcctl node power @com', 'compute'],
    ["svcctl node power '@com", '@compute'],
    ['svcctl nodes node001,@f', 'failed'],
    ["svcctl nodes 'node001,@f", 'node001,@failed'],
    ['svcctl node list @osimage:r', 'rocky9'],
    ["svcctl node list '@osimage:r", '@osimage:rocky9'],
    ['svcctl node ls @stat', 'status:'],
    ['svcctl node why node001,node00', 'node001,node001 node001,node002 node001,node003'],
    ['svcctl audit m', 'machines'],
    ['svcctl node preview node001 k', 'kickstart'],
    ['svcctl group get @', ''],
    ['svcctl node create node009 grou', 'group='],
    ['svcctl nod', 'nodes node']
  ]
  const { stdout, stderr } = await start('bash', ['-c', script, 'bash', ...lines.map(([line]) => line)], {
    ...{ input: '', env }
  }).ended
  t.same(
    stdout.replace(/\n$/, '').split('\n'),
    lines.map(([, words]) => words),
    stderr
  )
})

// A shell's completion starts the client at each Tab.
t.test('svcctl starts from one file', async t => {
  mkdirSync(join(directory, 'tree'))
  const tree = builtTree(join(directory, 'tree'))
  for (const name of readdirSync(join(tree, 'dist')))
    if (!['svcctl.js', 'commit'].includes(name)) rmSync(join(tree, 'dist', name), { recursive: true })
  rmSync(join(tree, 'node_modules'))
  const list = ['node', 'list', 'node00*', '--fields', 'name', '-o', 'csv']
  const listed = { code: 0, stdout: 'name\r\nnode001\r\nnode002\r\nnode003\r\n', stderr: '' }
  t.match(await start(join(tree, 'bin/svcctl'), list, { input: '', env }).ended, listed)
  t.match(await start(join(tree, 'bin/svcd'), ['ctl', ...list], { input: '', env }).ended, listed)
  const version = await start(join(tree, 'bin/svcctl'), ['--version'], { input: '' }).ended
  t.match(version, { code: 0, stdout: /commit baked/ })
})
