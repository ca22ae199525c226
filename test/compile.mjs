// node test/compile.mjs [CHECKOUT]: compiles lib/ and test/ to .cache/js, so that neither a test nor a worker
// or a program that it starts has to compile for itself. The other files stand there as copies, which a test
// cannot mistake for the checkout's own.
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { build, buildSync } from 'esbuild'
import { clientBundle } from '../build/bundle.mjs'

const checkout = resolve(process.argv[2] ?? join(import.meta.dirname, '..'))
const directory = join(checkout, '.cache', 'js')
/** Large, and never changed by a test. */
const linked = ['node_modules', 'dist']
const leftOut = [...linked, '.cache', '.git', '.tap', 'var']

/** Paths of the files and links below a directory of the checkout. */
const filesBelow = name =>
  lstatSync(join(checkout, name)).isDirectory()
    ? readdirSync(join(checkout, name)).flatMap(inside => filesBelow(join(name, inside)))
    : [name]

const same = (path, reader, content) => {
  try {
    return reader(path).equals?.(content) ?? reader(path) === content
  } catch {
    return false
  }
}

/** Writes what differs, as a whole: other tests may run from here meanwhile. */
function put(name, reader, writer, content) {
  const path = join(directory, name)
  if (same(path, reader, content)) return
  mkdirSync(dirname(path), { recursive: true })
  writer(`${path}.${process.pid}`)
  renameSync(`${path}.${process.pid}`, path)
}

function link(name) {
  const target = join(checkout, name)
  put(name, readlinkSync, path => symlinkSync(target, path), target)
}

function copy(name) {
  const content = readFileSync(join(checkout, name))
  put(name, readFileSync, path => writeFileSync(path, content), content)
  chmodSync(join(directory, name), lstatSync(join(checkout, name)).mode)
}

const there = readdirSync(checkout)
const files = there.filter(name => !leftOut.includes(name)).flatMap(filesBelow)
const isSource = name => /^(lib|test)\/.*\.ts$/.test(name)
const { outputFiles } = buildSync({
  entryPoints: files.filter(isSource).map(name => join(checkout, name)),
  outbase: checkout,
  outdir: directory,
  format: 'esm',
  target: 'es2022',
  sourcemap: 'inline',
  sourcesContent: false,
  write: false
})

/** For packages that are CommonJS. */
const banner = {
  js: `import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url)`
}

/**
 * tap as one file: its own two hundred modules take longer to load than most tests run. Its path is one that
 * tap leaves out of the stacks of failures.
 */
const tap = join(checkout, '.cache/node_modules/@tapjs/tap.js')
const bundled = buildSync({
  stdin: { contents: `export * from 'tap'; export { default } from 'tap'`, resolveDir: checkout },
  outfile: tap,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'es2022',
  alias: {
    'async-hook-domain': join(import.meta.dirname, 'domain.mjs'),
    '@tapjs/fixture': join(import.meta.dirname, 'fixture.mjs')
  },
  banner,
  write: false
})

/**
 * Programs that most tests start, each as a few files: loading the hundreds of modules that they have takes
 * longer than what they do. plain/ has them module by module.
 */
const programs = ['lib/main.ts', 'lib/services/render-worker.ts']

/** The modules of a program mean what lies beside them, wherever their code is now. */
const places = program => ({
  name: 'places',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/lib\/.*\.ts$/ }, ({ path }) => {
      const place = relative(dirname(program), path).replace(/ts$/, 'js')
      const url = `new URL('./${place}', import.meta.url).href`
      return { loader: 'ts', contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url) }
    })
})

/** Returns the files of a program, in the directory of its module. */
async function bundledProgram(name) {
  const program = join(checkout, name)
  const { outputFiles } = await build({
    entryPoints: [program],
    outdir: join(directory, dirname(name)),
    bundle: true,
    splitting: true,
    platform: 'node',
    format: 'esm',
    target: 'es2022',
    // Its CommonJS loads parts of itself in a way that a bundle does not have.
    external: ['jsonc-parser'],
    define: { __filename: '"svcd"' },
    plugins: [places(program)],
    banner,
    write: false
  })
  return outputFiles
}
const started = (await Promise.all(programs.map(bundledProgram))).flat()
const isProgram = path => programs.some(name => path === join(directory, name.replace(/ts$/, 'js')))
const plain = ({ path, text }) => ({
  path: isProgram(path) ? join(directory, 'plain', relative(directory, path)) : path,
  text
})

/** Evaluated for each file: its tap is the test that test/together.mjs made for it. */
const tapOf = join(dirname(tap), 'file.js')
const tapOfFile = `import root from './tap.js'
export * from './tap.js'
export default globalThis[Symbol.for('svcd.test-file')] ?? root
`

const withTap = (path, text) =>
  text.replace(
    /^(import .* from )"tap";$/m,
    (_, words) => `${words}"${relative(dirname(path), tapOf)}?${relative(directory, path)}";`
  )
const compiled = new Map(
  [...outputFiles.map(plain), ...started, ...bundled.outputFiles, { path: tapOf, text: tapOfFile }].map(
    ({ path, text }) => [relative(directory, path), Buffer.from(withTap(path, text))]
  )
)
const links = there.filter(name => linked.includes(name))
const copies = files.filter(name => !isSource(name))

/** The client as `make build` makes it, so that a built tree is a copy alone. */
const client = join('lib', 'svcctl.js')

const kept = new Set([...links, ...copies, ...compiled.keys(), client])
mkdirSync(directory, { recursive: true })
// Not `recursive`, which follows links from Node 22 on: the packages themselves would be removed.
const madeBelow = path =>
  readdirSync(path, { withFileTypes: true }).flatMap(entry =>
    entry.isDirectory() ? madeBelow(join(path, entry.name)) : [join(path, entry.name)]
  )
// A name with a number at its end is what another run is about to put in its place.
for (const path of madeBelow(directory))
  if (!kept.has(path.slice(directory.length + 1)) && !/\.\d+$/.test(path)) rmSync(path)
for (const name of links) link(name)
for (const name of copies) copy(name)
for (const [name, contents] of compiled)
  put(name, readFileSync, made => writeFileSync(made, contents), contents)
const bundledClient = Buffer.from(clientBundle(join(directory, 'lib')))
put(client, readFileSync, made => writeFileSync(made, bundledClient), bundledClient)
