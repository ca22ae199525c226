import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import t from 'tap'
import ts from 'typescript'
import { checkout } from './support/programs.js'

/** These know nothing of the service and are imported by all. */
const GROUND = ['program', 'disk', 'client', 'base']

/**
 * What each room of lib/ may import beside the ground floor, a room being a directory or a file at the top,
 * or a directory in a room where it is listed: whole rooms, or single files of them. The rooms stand from the
 * top of the house to its ground; nothing imports upwards.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  main: ['cli', 'helper', 'config', 'version'],
  cli: [
    'daemon',
    'rehearsal',
    'api',
    'backup',
    'boot',
    'imports',
    'store',
    'store/files',
    'store/etcd',
    'model',
    'version',
    'ctl',
    'auth',
    'helper',
    'helper/packer',
    'image',
    'services',
    'template',
    'http/certificate',
    'identity',
    'trust/authorities',
    'config'
  ],
  // Files of other systems; in the command line alone.
  imports: ['model', 'node-set'],
  // The client speaks http to the daemon, and shares its tables alone.
  ctl: ['model', 'node-set', 'version'],
  daemon: [
    'peers',
    'composition',
    ...[
      'api',
      'boot',
      'boot/grub/tree',
      'image',
      'image/torrent/distribution',
      'consoles',
      'control',
      'helper',
      'helper/transfer/remote',
      'rehearsal',
      'services',
      'monitor',
      'inventory',
      'trust',
      'unknown',
      'identity',
      'auth',
      'model',
      'store',
      'store/files',
      'jobs',
      'template',
      'http'
    ],
    'config',
    'backup',
    'version'
  ],
  // The wing for several controllers. It can be deleted: the daemon loads it, and nothing else knows it.
  peers: [
    'composition',
    ...[
      'api',
      'image',
      'services',
      'monitor',
      'inventory',
      'unknown',
      'auth',
      'model',
      'store',
      'store/files',
      'store/etcd',
      'jobs',
      'http',
      'config'
    ]
  ],
  // The words that the daemon and its wings share.
  composition: [
    ...[
      'api',
      'image',
      'services',
      'monitor',
      'inventory',
      'unknown',
      'auth',
      'model',
      'store',
      'store/files',
      'jobs',
      'http',
      'config'
    ]
  ],
  api: [
    ...[
      'rehearsal',
      'boot',
      'disk-layout',
      'image',
      'exports',
      'consoles',
      'control',
      'services',
      'monitor',
      'inventory',
      'trust',
      'unknown',
      'identity/oidc',
      'auth',
      'model',
      'node-set',
      'jobs',
      'http',
      'config'
    ],
    'store/medium',
    'store/errors',
    'version'
  ],
  // A node's next boot in a virtual machine. CONTRIBUTING tells how a feature is deleted.
  rehearsal: ['disk-layout/data', 'helper', 'inventory/facts', 'model', 'jobs', 'config'],
  // Users that a directory or a provider vouches for.
  identity: ['auth/grant', 'config'],
  boot: ['boot/grub', 'disk-layout', 'monitor', 'model', 'template'],
  'disk-layout': ['inventory', 'model', 'node-set'],
  // Machines that belong to no node: what asked, and what a scan of BMCs found.
  unknown: ['control', 'model', 'jobs', 'config'],
  image: [
    'helper',
    'helper/packer',
    'helper/transfer',
    'image/torrent',
    'model',
    // A pack of which nobody knows whether it is stored.
    'store/errors',
    // Its notes.
    'store/record-map',
    'store/records',
    'monitor',
    'jobs',
    'config'
  ],
  // Root's work: it knows directories and words, and no object.
  helper: ['helper/packer', 'helper/transfer', 'config'],
  // These three know no object, and not each other.
  'helper/packer': [],
  'helper/transfer': [],
  'image/torrent': [],
  // It knows the formats of other programs, and asks nobody.
  exports: ['services', 'inventory', 'model', 'node-set'],
  consoles: ['services', 'control/bmc', 'model', 'http', 'config'],
  control: ['model', 'node-set', 'jobs', 'config'],
  services: ['monitor', 'model', 'store', 'template', 'config'],
  // Machines of nodes prove themselves.
  trust: ['boot/grub/script', 'tpm', 'monitor', 'model', 'store'],
  // The hardware of nodes, and which node is not like the others.
  inventory: ['monitor', 'model', 'store'],
  monitor: ['model', 'node-set', 'store', 'jobs'],
  jobs: ['store/records'],
  // The ini's [users] lines hold roles and hashes.
  config: ['auth/passwords', 'auth/grant'],
  auth: ['model', 'http', 'store'],
  model: ['store', 'template'],
  // It knows files and names, and no object.
  backup: ['store/record-kinds'],
  // A medium knows the store's words; the store knows none of them.
  'store/files': ['store'],
  'store/etcd': ['store'],
  store: [],
  'node-set': [],
  // Scripts and files of GRUB as texts and bytes; it knows no object.
  'boot/grub': ['tpm'],
  // Structures that a TPM made: it knows bytes, and no object.
  tpm: [],
  template: [],
  http: [],
  version: [],
  program: ['base'],
  disk: ['base'],
  client: [],
  base: []
}

/** Lines of a function, from its first to its last. */
const LONGEST_FUNCTION = 70

/** Path below lib/ without its ending → parsed source. */
const sources = new Map(
  readdirSync(join(checkout, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts'))
    .sort()
    .map(name => [
      name.replace(/\.ts$/, ''),
      ts.createSourceFile(
        name,
        readFileSync(join(checkout, 'lib', name), 'utf8'),
        ts.ScriptTarget.ES2022,
        true
      )
    ])
)

const importsOf = (source: ts.SourceFile) =>
  ts.preProcessFile(source.text, true, true).importedFiles.map(({ fileName }) => fileName)

const innerRooms = Object.keys(MAY_IMPORT).filter(room => room.includes('/'))

/** The innermost room that a file is in, or the one that an entry of the table names. */
const roomOf = (file: string) =>
  innerRooms.find(room => `${file}/`.startsWith(`${room}/`)) ?? (file.split('/', 1)[0] as string)

/** The files of lib/ that a file imports, as types or at run time, at its head or later. */
const imports = new Map(
  [...sources].map(([file, source]) => [
    file,
    importsOf(source)
      .filter(name => name.startsWith('.'))
      .map(name => posix.join(dirname(file), name).replace(/\.js$/, ''))
  ])
)

function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node)
  ts.forEachChild(node, child => walk(child, visit))
}

/** `file:line` of every node of lib/ that `is` tells of, with its text. */
function find(is: (node: ts.Node, file: string) => boolean): string[] {
  const found: string[] = []
  for (const [file, source] of sources)
    walk(source, node => {
      if (!is(node, file)) return
      const { line } = source.getLineAndCharacterOfPosition(node.getStart())
      found.push(`lib/${file}.ts:${line + 1}: ${node.getText().split('\n', 1)[0]}`)
    })
  return found
}

t.test('imports run downwards only', async t => {
  const wrong: string[] = []
  for (const [file, targets] of imports)
    for (const target of targets) {
      t.ok(sources.has(target), `lib/${file}.ts imports a file of lib/: ${target}`)
      const [from, to] = [roomOf(file), roomOf(target)]
      const ground = GROUND.includes(from) ? [] : GROUND
      const allowed = [...(MAY_IMPORT[from] ?? []), ...ground]
      if (from !== to && !allowed.includes(to) && !allowed.includes(target))
        wrong.push(`lib/${file}.ts imports ${target}: ${from} may import ${allowed.join(', ') || 'nothing'}`)
    }
  t.strictSame(wrong, [])
  const unknown = [...sources.keys()].map(roomOf).filter(room => !(room in MAY_IMPORT))
  t.strictSame(unknown, [], 'every room has its place in the table')
})

t.test('only the composition root and peers/ ask who leads, and name etcd', async t => {
  const asks = ['daemon', 'peers', 'store', 'store/files', 'store/etcd']
  // A follower's model is read-only.
  const isModel = (file: string) => file === 'model/model'
  const asking = find(
    (node, file) =>
      ts.isIdentifier(node) &&
      /^(isLeader|isFollowing|fencingToken|LeaderEndpoint)$/.test(node.text) &&
      !asks.includes(roomOf(file)) &&
      !isModel(file)
  )
  t.strictSame(asking, [])
  const naming = [...imports].flatMap(([file, targets]) =>
    targets.some(target => roomOf(target) === 'store/etcd') ? roomOf(file) : []
  )
  t.strictSame([...new Set(naming)].sort(), ['cli', 'peers', 'store/etcd'])
  const wing = [...imports].flatMap(([file, targets]) =>
    roomOf(file) !== 'peers' && targets.some(target => roomOf(target) === 'peers') ? file : []
  )
  t.strictSame(wing, ['daemon'])
})

t.test('the table of rooms goes downwards itself', async t => {
  const order = Object.keys(MAY_IMPORT)
  for (const [room, allowed] of Object.entries(MAY_IMPORT))
    for (const target of allowed)
      t.ok(order.indexOf(roomOf(target)) > order.indexOf(room), `${target} stands below ${room}`)
})

t.test('no file imports itself by way of others', async t => {
  const done = new Set<string>()
  const circles: string[] = []
  const follow = (file: string, path: readonly string[]) => {
    const start = path.indexOf(file)
    if (start >= 0) circles.push([...path.slice(start), file].join(' -> '))
    if (start >= 0 || done.has(file)) return
    for (const target of imports.get(file) ?? []) follow(target, [...path, file])
    done.add(file)
  }
  for (const file of imports.keys()) follow(file, [])
  t.strictSame(circles, [])
})

t.test('the client loads the tables, and nothing of the daemon', async t => {
  const loaded = new Set<string>()
  const load = (file: string) => {
    if (loaded.has(file)) return
    loaded.add(file)
    for (const target of imports.get(file) ?? []) load(target)
  }
  load('cli/ctl')
  const rooms = new Set([...loaded].map(roomOf).filter(room => !GROUND.includes(room)))
  t.strictSame([...rooms].sort(), ['cli', 'ctl', 'model', 'node-set', 'store', 'template', 'version'])
  t.strictSame([...loaded].filter(file => roomOf(file) === 'cli').sort(), ['cli/ask', 'cli/ctl'])
})

t.test('only the command line exits, reads arguments and speaks', async t => {
  const may: Readonly<Record<string, readonly string[]>> = {
    'process.exit': ['main'],
    'process.exitCode': ['main'],
    'process.abort': [],
    'process.argv': ['main'],
    'process.stdout': ['main', 'cli'],
    'process.stderr': ['main', 'cli', 'base/log'],
    console: []
  }
  const wrong = find((node, file) => {
    const isConsole = ts.isIdentifier(node) && node.text === 'console'
    const rooms = isConsole || ts.isPropertyAccessExpression(node) ? may[node.getText()] : undefined
    return rooms !== undefined && !rooms.includes(roomOf(file)) && !rooms.includes(file)
  })
  t.strictSame(wrong, [])
})

t.test('threads are started and answered by base/thread alone', async t => {
  const wrong = find(
    (node, file) =>
      file !== 'base/thread' && ts.isStringLiteralLike(node) && /worker_threads$/.test(node.text)
  )
  t.strictSame(wrong, [])
})

t.test('programs are started by program/ alone, and never through a shell', async t => {
  // The second listener is a copy of this process, and no program.
  const may = (file: string) => roomOf(file) === 'program' || file === 'http/admission/acceptor'
  const wrong = find((node, file) => {
    if (ts.isPropertyAssignment(node) || ts.isShorthandPropertyAssignment(node))
      return node.name.getText() === 'shell'
    if (!ts.isStringLiteralLike(node) || !/child_process$/.test(node.text)) return false
    if (!may(file)) return true
    // Imported at the head and by name only, so that what is used stands there.
    const bindings = ts.isImportDeclaration(node.parent) && node.parent.importClause?.namedBindings
    if (!bindings || !ts.isNamedImports(bindings)) return true
    return bindings.elements.some(({ name, propertyName }) =>
      /^exec(Sync)?$/.test((propertyName ?? name).text)
    )
  })
  t.strictSame(wrong, [])
})

t.test('only client/ sends http requests', async t => {
  const mayServe = ['createServer', 'STATUS_CODES']
  const wrong = find((node, file) => {
    if (roomOf(file) === 'client') return false
    if (ts.isCallExpression(node)) return node.expression.getText() === 'fetch'
    if (!ts.isStringLiteralLike(node) || !/^(?:(?:node:)?https?2?|undici(?:\/.*)?)$/.test(node.text))
      return false
    if (!ts.isImportDeclaration(node.parent))
      return !ts.isLiteralTypeNode(node.parent) && isLoaded(node.parent)
    const { importClause } = node.parent
    if (importClause?.isTypeOnly) return false
    const bindings = importClause?.namedBindings
    if (!bindings || !ts.isNamedImports(bindings)) return true
    return bindings.elements.some(
      ({ isTypeOnly, name, propertyName }) => !isTypeOnly && !mayServe.includes((propertyName ?? name).text)
    )
  })
  t.strictSame(wrong, [])
})

/** Whether a node loads a module: `import('…')`, `require('…')` or `export … from '…'`. */
const isLoaded = (node: ts.Node) =>
  ts.isExportDeclaration(node) ||
  (ts.isCallExpression(node) &&
    /^(import|require|process\.getBuiltinModule)$/.test(node.expression.getText()))

const isExported = (node: ts.Declaration) =>
  (ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Export) !== 0

t.test('every exported function and class has a doc comment', async t => {
  const wrong = find(node => {
    if (ts.isFunctionDeclaration(node) || ts.isClassDeclaration(node))
      return isExported(node) && ts.getJSDocCommentsAndTags(node).length === 0
    if (!ts.isVariableDeclaration(node) || !isExported(node)) return false
    const { initializer } = node
    const isFunction =
      initializer && (ts.isArrowFunction(initializer) || ts.isFunctionExpression(initializer))
    return isFunction === true && ts.getJSDocCommentsAndTags(node).length === 0
  })
  t.strictSame(wrong, [])
})

t.test('no function of lib is longer than 70 lines', async t => {
  const long = new Map<string, number>()
  for (const [file, source] of sources)
    walk(source, node => {
      if (!ts.isFunctionLike(node) || !('body' in node) || !node.body) return
      const lineOf = (at: number) => source.getLineAndCharacterOfPosition(at).line
      const lines = lineOf(node.getEnd()) - lineOf(node.getStart()) + 1
      if (lines <= LONGEST_FUNCTION) return
      const { name = (node.parent as ts.NamedDeclaration).name } = node
      long.set(`${file} ${name?.getText() ?? `line ${lineOf(node.getStart()) + 1}`}`, lines)
    })
  t.strictSame([...long], [])
})

t.test('what lib/ imports is a declared dependency, and every dependency has its reason', async t => {
  const { dependencies } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8'))
  const declared = Object.keys(dependencies).sort()
  const used = new Set(
    [...sources.values()]
      .flatMap(importsOf)
      .filter(name => !name.startsWith('.') && !name.startsWith('node:'))
      .map(name => /^(?:@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? name)
  )
  t.strictSame(
    [...used].filter(name => !declared.includes(name)),
    [],
    'what lib/ imports is node’s (node:…), its own or a dependency'
  )
  const file = join(checkout, 'docs', 'dependencies.md')
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []
  const major = (name: string) => /\d+/.exec(dependencies[name])?.[0]
  t.strictSame(
    declared.filter(name => !lines.some(line => line.startsWith(`| ${name} ${major(name)} | `))),
    [],
    'docs/dependencies.md has a row for each, with its major and the reason'
  )
})
