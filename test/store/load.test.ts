import { chmodSync, cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { problemText } from '../../lib/base/errors.js'
import { FieldError, LoadError } from '../../lib/store/errors.js'
import { output } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { until } from '../support/until.js'
import { Store } from './file-store.js'
import { kinds, type MacIndex, node, openStore, optionsFor, type TestTypes } from './fixtures.js'

const text = (doc: object) => `${JSON.stringify(doc, null, 2)}\n`

/** Every file below, with its content. */
function snapshot(directory: string): Record<string, string> {
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' }).sort()
  return Object.fromEntries(
    files
      .filter(file => statSync(join(directory, file)).isFile())
      .map(file => [file, readFileSync(join(directory, file), 'latin1')])
  )
}

const broken = {
  node: {
    'array.json': '[]\n',
    'bytes.json': Buffer.from('{\n"name": "bytes", "mac": "\xff", "tags": []}', 'latin1'),
    'comment.json': '{\n  "name": "comment", // me\n  "tags": []\n}\n',
    'cut.json': '{\n  "name": "cut",\n  "tags": [\n',
    'empty.json': '',
    'good.json': text(node('good')),
    'renamed.json': text(node('before')),
    'twice.json': '{\n  "name": "twice",\n  "mac": "aa",\n  "tags": [],\n  "mac": "bb"\n}\n',
    'types.json': '{\n  "name": "types",\n  "tags": {}\n}\n',
    'notes.txt': 'buy milk',
    'good.json.bak': text(node('good')),
    'good.json~': 'an editor',
    '.good.json.swp': 'an editor'
  },
  intents: { '000000000001.json': '{\n"writes": [\n' }
}

// rules 11.2
t.test(
  'a file that does not parse or breaks a rule stops the start, and check tells of all of them',
  async t => {
    const directory = t.testdir(broken)
    const before = snapshot(directory)
    const stops = [
      /intents\/000000000001\.json:3: a damaged intent: not JSON/,
      /node\/array\.json: name is undefined/,
      /node\/bytes\.json:2: not UTF-8/,
      /node\/comment\.json:2: not JSON/,
      /node\/cut\.json:4: not JSON/,
      /node\/empty\.json:1: not JSON/,
      /node\/renamed\.json: name is "before", not "renamed"/,
      /node\/twice\.json:5: the key "mac" is given twice/,
      /node\/types\.json: a field is of the wrong type/
    ]
    const inspected = (await Store.inspect(optionsFor(directory))).map(problemText)
    t.match(inspected, [
      ...stops,
      /node\/good\.json\.bak: not a file of the store/,
      /node\/notes\.txt: not a file/
    ])
    t.equal(inspected.length, stops.length + 2)
    t.same(snapshot(directory), before, 'inspecting writes nothing')

    const error = await openStore(directory).catch((error: unknown) => error)
    t.ok(error instanceof LoadError)
    if (error instanceof LoadError) {
      t.equal(error.problems.length, stops.length)
      t.match(error.problems.map(problemText), stops)
      t.ok(error.problems.every(({ file }) => existsSync(file)))
    }
    const { 'holder.json': _, ...after } = snapshot(directory)
    t.same(after, before, 'nothing is skipped, moved or overwritten')
  }
)

// rules 11.6
t.test('a pipe in the place of a file stops the start and is named', async t => {
  for (const [directory, name] of [
    ['node', 'a'],
    ['intents', '000000000001']
  ] as const) {
    const root = t.testdir({ node: {}, intents: {} })
    const file = join(root, directory, `${name}.json`)
    await output('mkfifo', [file])
    await t.rejects(openStore(root), {
      message: new RegExp(`${file}: .*it is not a regular file; move it away`)
    })
  }
  proof('a FIFO in place of a state file', { tried: 2, crashes: 0 })
})

t.test('foreign files do not stop a start, and stay', async t => {
  const directory = t.testdir({ node: { 'good.json': text(node('good')), 'notes.txt': 'buy milk' } })
  const logged: string[] = []
  const store = await openStore(directory, { log: (level, message) => logged.push(`${level} ${message}`) })
  t.match(logged, [/^warn .*notes\.txt: not a file of the store/])
  await store.close()
  t.equal(readFileSync(join(directory, 'node/notes.txt'), 'utf8'), 'buy milk')
})

t.test('the rules over the whole state', async t => {
  const directory = t.testdir({
    node: { 'a.json': text(node('a', 'aa')), 'b.json': text(node('b', 'aa')), 'c.json': '{' }
  })
  const verify: NonNullable<Parameters<typeof optionsFor>[1]>['verify'] = function* (view) {
    yield
    return view
      .names('node')
      .filter(name => view.index.owner.get(view.get('node', name)?.mac ?? '') !== name)
      .map(name => ({ type: 'node', name, message: 'another node has its MAC' }))
  }
  const problems = [/node\/c\.json:1: not JSON/, /node\/a\.json: another node has its MAC/]
  t.match((await Store.inspect(optionsFor(directory, { verify }))).map(problemText), problems)
  await t.rejects(openStore(directory, { verify }), LoadError)
  writeFileSync(join(directory, 'node/c.json'), text(node('c', 'cc')))
  await t.rejects(openStore(directory, { verify }), /a\.json: another/)
  writeFileSync(join(directory, 'node/a.json'), text(node('a', 'dd')))
  t.same(await Store.inspect(optionsFor(directory, { verify })), [])
  await (await openStore(directory, { verify })).close()
})

t.test('a decoder that knows where the trouble is gives the line', async t => {
  const directory = t.testdir({
    node: { 'a.json': '{\n  "name": "a",\n  "tags": [\n    "x",\n    7\n  ]\n}\n' }
  })
  const options = optionsFor(directory, {
    kinds: {
      ...kinds,
      node: {
        encode: kinds.node.encode,
        decode() {
          throw new FieldError(['tags', 1], 'tags must be strings')
        }
      }
    }
  })
  t.match((await Store.inspect<TestTypes, MacIndex>(options)).map(problemText), [
    /node\/a\.json:5: tags must be/
  ])
})

t.test(
  'an unfinished intent is applied by check in memory only, and overrules the file it replaces',
  async t => {
    const write = { type: 'node', name: 'a', text: text(node('a', 'from the intent')) }
    const directory = t.testdir({
      node: { 'a.json': text(node('a', 'from the file')), 'b.json': text(node('b')) },
      intents: {
        '000000000001.json': JSON.stringify({ writes: [write, { type: 'node', name: 'b', text: null }] })
      }
    })
    const before = snapshot(directory)
    let seen: unknown
    await Store.inspect(
      optionsFor(directory, {
        *verify(view) {
          yield
          seen = [view.names('node').slice(), view.get('node', 'a')?.mac]
          return []
        }
      })
    )
    t.same(seen, [['a'], 'from the intent'])
    t.same(snapshot(directory), before)
  }
)

t.test('check of a directory that is not there yet, and of one that is in use', async t => {
  const directory = join(t.testdir(), 'not/yet')
  t.same(await Store.inspect(optionsFor(directory)), [])
  t.notOk(existsSync(directory))
  const store = await openStore(directory)
  t.equal(statSync(directory).mode & 0o777, 0o700)
  await store.change(tx => tx.put('node', 'a', node('a')))
  t.same(await Store.inspect(optionsFor(directory)), [])
  await store.close()
})

t.test('a copy of the files is a backup', async t => {
  const root = t.testdir()
  const store = await openStore(join(root, 'one'))
  await store.change(tx => {
    for (let i = 0; i < 30; i++) tx.put('node', `n${i}`, node(`n${i}`))
  })
  // While files are written, a copy may miss one.
  await until(() => readdirSync(join(root, 'one', 'log')).length === 0)
  cpSync(join(root, 'one'), join(root, 'two'), {
    recursive: true,
    filter: source => !source.endsWith('/lock')
  })
  chmodSync(join(root, 'two'), 0o755)
  await store.close()
  const copy = await openStore(join(root, 'two'))
  t.equal(copy.current.names('node').length, 30)
  await copy.close()
})
