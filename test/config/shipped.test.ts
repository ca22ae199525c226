import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { table } from '../../lib/config/keys.js'
import { iniText } from '../../lib/config/lines.js'
import { loadConfig } from '../../lib/config/load.js'

const file = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const shipped = readFileSync(file, 'utf8')
const lines = shipped.split('\n')

// rules 7.4
t.test('the shipped ini has every key with its default below a one-line comment', async t => {
  for (const [section, keys] of Object.entries(table)) {
    const from = lines.indexOf(`[${section}]`)
    const to = lines.findIndex((line, index) => index > from && line.startsWith('['))
    const own = lines.slice(from + 1, to < 0 ? undefined : to)
    t.not(from, -1, `[${section}]`)
    t.strictSame(
      // A value with = stands in quotes.
      own
        .filter(line => line.includes(' =') && !line.startsWith('#'))
        .map(line => line.replace(/^(\w+ = )"(.*=.*)"$/, '$1$2')),
      Object.entries(keys).map(([name, key]) => `${name} = ${key.default}`.trimEnd())
    )
    for (const [name, key] of Object.entries(keys)) {
      const at = own.findIndex(line => line.startsWith(`${name} =`))
      t.match(own[at - 1], /^# \S.{8,110}\.$/, `comment of ${section}.${name}`)
      t.equal(own[at - 1], `# ${key.doc}`)
    }
  }
})

t.test(
  'it is what the table makes: to renew it, make build && node build/ini.mjs > etc/svcd.ini',
  async t => {
    t.equal(shipped, iniText())
  }
)

t.test('it says nothing that an empty one does not', async t => {
  const empty = join(t.testdir({ etc: { 'svcd.ini': '' } }), 'etc', 'svcd.ini')
  const real = join(t.testdir({ etc: { 'svcd.ini': shipped } }), 'etc', 'svcd.ini')
  const { file: _file, ...defaults } = loadConfig(empty, [])
  const { file: _other, ...config } = loadConfig(real, [])
  t.strictSame(config, defaults)
})

// rules 7.1, 4.7
t.test('the checkout keeps its state in var/ and holds no user and no password', async t => {
  const config = loadConfig(file, [])
  const root = fileURLToPath(new URL('../..', import.meta.url))
  t.equal(config.paths.state, join(root, 'var'))
  t.equal(config.paths.templates, join(root, 'templates'))
  t.equal(config.paths.files, join(root, 'var/files'))
  t.equal(config.image.directory, join(root, 'var/images'))
  t.strictSame(config.users, [])
  t.equal(config.kickstart.rootpw, '')
})

t.test('settings of an installation are read back as they were given', async t => {
  const state = '/srv/a b; #c="d"'
  const directory = t.testdir({
    'svcd.ini': iniText({ 'paths.state': state, 'cluster.technical_contacts': ' "x" ' })
  })
  const config = loadConfig(join(directory, 'svcd.ini'), [])
  t.equal(config.paths.state, state)
  t.equal(config.cluster.technical_contacts, ' "x" ')
})
