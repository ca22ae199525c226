import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { importFrom } from '../../lib/cli/transfer.js'
import { loadConfig } from '../../lib/config/load.js'
import { richCluster } from '../api/contract/rich.js'
import { builtTree, onTerminal, svcd } from '../support/built-tree.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { stored } from '../support/state.js'

const tree = builtTree(t.testdir())
/** The options by which the command finds the daemon of a controller. */
const options = ({ overrides, daemon }: Controller) => {
  const settings = [...overrides, `http.listen=127.0.0.1:${daemon.port}`]
  return ['--config', join(tree, 'etc/svcd.ini'), ...settings.flatMap(setting => ['--set', setting])]
}
const exportOf = (c: Controller) => svcd(tree, ['export', ...options(c)])
const importInto = (c: Controller, file: string, input?: string) =>
  svcd(tree, ['import', '--yes', file, ...options(c)], input)

/** Imports a document in this process, which costs less than a program. */
const importHere = (text: string) => {
  const file = join(tree, 'here.json')
  writeFileSync(file, text)
  const settings = [...c.overrides, `http.listen=127.0.0.1:${c.daemon.port}`]
  return importFrom(loadConfig(join(tree, 'etc/svcd.ini'), settings), file, true)
}

const c = await Controller.start(t)
await richCluster(c)
// More than a pipe holds.
await c.post('/config/network/net-2', { comment: 'x🙂'.repeat(100_000) })
const document = (await c.get('/config/cluster/export')).text

t.test('export prints what the daemon exports to an admin', async t => {
  const { code, stdout, stderr } = await exportOf(c)
  t.equal(code, 0, stderr)
  t.equal(stdout.length, document.length)
  t.equal(stdout, document)
})

t.test('import from a file and from standard input', async t => {
  const file = join(tree, 'document.json')
  writeFileSync(file, document)
  for (const [name, input] of [
    [file, ''],
    ['-', document]
  ] as const) {
    const empty = await Controller.start(t)
    const { code, stdout, stderr } = await importInto(empty, name, input)
    t.equal(code, 0, stderr)
    t.match(stdout, /^imported: cluster: 1 created; network: \d+ created; .*\n$/)
    t.equal((await empty.get('/config/cluster/export')).text, document)
    const audit = readFileSync(join(empty.directory, 'state', 'audit.log'), 'utf8')
      .trimEnd()
      .split('\n')
    for (const [i, line] of audit.entries())
      t.match(JSON.parse(line), {
        ...{ who: 'user admin', from: '127.0.0.1' },
        action: i === 0 ? 'import' : /^(create|update)$/
      })
  }
})

// rules 3.11
t.test('without a terminal and without --yes nothing is imported, and what would be is told', async t => {
  const changed = JSON.parse(document)
  const [first = ''] = Object.keys(changed.config.otherdev)
  delete changed.config.otherdev[first]
  const before = await stored(c)
  const { code, stdout, stderr } = await svcd(tree, ['import', '-', ...options(c)], JSON.stringify(changed))
  t.equal(code, 2)
  t.equal(stdout, '')
  t.match(stderr, `1 other device would be deleted: ${first}\n`)
  t.match(stderr, /^svcd: nothing was imported: .*--yes/m)
  t.same(await stored(c), before)
  const same = await svcd(tree, ['import', '-', ...options(c)], document)
  t.match(same, { code: 0, stdout: 'nothing differs\n', stderr: '' })
})

// rules 3.11
t.test('on a terminal the difference is shown and asked about', async t => {
  const changed = JSON.parse(document)
  const names = Object.keys(changed.config.node)
  for (let i = 0; i < 30; i++) changed.config.node[`fresh${i}`] = {}
  const file = join(tree, 'changed.json')
  writeFileSync(file, JSON.stringify(changed))
  const before = await stored(c)
  for (const answer of ['\r', 'n\r', 'yesterday\r', '\x04', '\x03']) {
    const { says, type, ended } = onTerminal(join(tree, 'bin', 'svcd'), 'import', file, ...options(c))
    await says('Import this? [y/N] ')
    type(answer)
    const { code, stdout } = await ended
    t.equal(code, 1, JSON.stringify(answer))
    t.match(stdout, /^30 nodes would be created: fresh0, fresh1, .*fresh19 and 10 more\r\n/)
    t.match(stdout, /svcd: nothing was imported/)
  }
  t.same(await stored(c), before)
  const { says, type, ended } = onTerminal(join(tree, 'bin', 'svcd'), 'import', file, ...options(c))
  await says('Import this? [y/N] ')
  type('yes\r')
  const { code, stdout } = await ended
  t.equal(code, 0, stdout)
  t.match(stdout, /imported: node: 30 created\r\n$/)
  const { body } = await c.get('/config/node')
  t.equal(Object.keys(body.config.node).length, names.length + 30)
  await c.post('/config/cluster/import', document)
})

// rules 3.11
t.test('what changes while it is asked about is not overwritten unseen', async t => {
  const file = join(tree, 'asked.json')
  const changed = JSON.parse(document)
  changed.config.node.fresh = {}
  writeFileSync(file, JSON.stringify(changed))
  const { says, type, ended } = onTerminal(join(tree, 'bin', 'svcd'), 'import', file, ...options(c))
  await says('Import this? [y/N] ')
  await c.post('/config/node/booted', {})
  const before = await stored(c)
  type('yes\r')
  const { code, stdout } = await ended
  t.equal(code, 1)
  t.match(stdout, /something has changed since the dry run; make it again/)
  t.same(await stored(c), before)
  await c.post('/config/cluster/import', document)
})

// rules 12.8
t.test('nor by a table', async t => {
  const file = join(tree, 'asked.csv')
  writeFileSync(file, 'name,comment\nn9,asked\n')
  const { says, type, ended } = onTerminal(
    ...([join(tree, 'bin', 'svcd'), 'import', '--csv', file, ...options(c)] as const)
  )
  await says('Import this? [y/N] ')
  await c.post('/config/node/n9', { comment: 'meanwhile' })
  const before = await stored(c)
  type('yes\r')
  const { code, stdout } = await ended
  t.equal(code, 1, stdout)
  t.match(stdout, /something has changed since the dry run/)
  t.same(await stored(c), before)
  await c.post('/config/cluster/import', document)
})

t.test('names in a hostile document do not steer the terminal', async t => {
  const { code, stderr } = await importInto(c, '-', '{"node": {"x\\u001b]0;owned\\u0007\\u001b[2J": {}}}')
  t.equal(code, 1)
  t.match(stderr, 'x\\u001b]0;owned\\u0007\\u001b[2J')
  t.notMatch(stderr, /[\u0000-\u0009\u000b-\u001f]/)
})

// rules 3.11
t.test('what the daemon refuses is an error with all its problems, and changes nothing', async t => {
  const before = await stored(c)
  const rows: [string, RegExp][] = [
    [
      '{"node": {"n77": {"color": 1}, "n78": {"group": 5}}}',
      /config\.node\.n77.*color.*config\.node\.n78.*group/
    ],
    ['{"group": {}}', /config\.node\.n10: .*group g10 does not exist/],
    ['{"group": }', /line 1/],
    ['', /./]
  ]
  for (const [i, [input, says]] of rows.entries()) {
    await t.rejects(importHere(input), { message: says }, input)
    // By the program: a refusal of objects, of a text, and of nothing at all.
    if (i === 1) continue
    const { code, stdout, stderr } = await importInto(c, '-', input)
    t.equal(code, 1, input)
    t.equal(stdout, '')
    t.match(stderr, says)
    t.notMatch(stderr, /^\s+at /m, 'no stack')
  }
  t.same(await stored(c), before)
})

t.test('what cannot be imported is told without the route', async t => {
  const nowhere = await importInto(c, join(tree, 'nope.json'))
  t.match(nowhere, { code: 1, stderr: `svcd: ${join(tree, 'nope.json')}: there is no such file\n` })
  await t.rejects(importHere('{"nope":{}}'), {
    message: /^import refused: config\.nope: there is no such section$/
  })
})

t.test('with users in the ini it acts for an admin among them', async t => {
  const hash = cheapHash('x')
  Object.assign(c, { overrides: [...c.overrides, `users.eve=viewer ${hash}`, `users.zoe=admin ${hash}`] })
  await c.restart()
  const { code, stdout } = await exportOf(c)
  t.equal(code, 0)
  t.equal(stdout, document)
  Object.assign(c, { overrides: c.overrides.filter(line => !line.startsWith('users.zoe')) })
  const { code: none, stderr } = await exportOf(c)
  t.equal(none, 1)
  t.match(stderr, /\[users\] names no admin/)
})

t.test('without a daemon both say so, and touch nothing', async t => {
  await c.daemon.close(1000)
  const before = await stored(c)
  for (const ended of [await exportOf(c), await importInto(c, '-', document)]) {
    t.equal(ended.code, 1)
    t.equal(ended.stdout, '')
    t.match(ended.stderr, /\[users\] names no admin|no svcd answers at 127\.0\.0\.1 port \d+/)
  }
  t.same(await stored(c), before)
})
