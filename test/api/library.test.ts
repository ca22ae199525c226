import { createHash } from 'node:crypto'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

// They wait more than they work.
t.jobs = 3

const source = '10.141.0.1'
const shipped = fileURLToPath(new URL('../../templates', import.meta.url))

/** A controller with a node that can be installed, and templates of its own. */
async function cluster(test: Test) {
  const templates = join(scratch(test), 'templates')
  cpSync(shipped, templates, { recursive: true })
  const c = await Controller.start(test, `paths.templates=${templates}`)
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const { config } = (await c.get('/config/node/node001')).body
  const address = config.node.node001.interfaces[0].ipaddress as string
  const script = async () => (await c.get('/boot/install/node001', { token: null, source: address })).text
  return { c, templates, script }
}
const named = (script: string) => /^ {2}library '([\da-f]{64})'$/m.exec(script)?.[1] ?? ''

// rules 4.27
t.test('the install script names the library, and is small', { buffered: true }, async t => {
  const { c, script } = await cluster(t)
  const text = await script()
  const sum = named(text)
  const { status, headers, text: library } = await c.get(`/boot/library/${sum}`, { token: null, source })
  t.equal(status, 200)
  t.equal(createHash('sha256').update(library).digest('hex'), sum)
  t.match(headers, {
    'content-type': 'text/plain; charset=utf-8',
    'cache-control': 'public, max-age=31536000, immutable',
    etag: `"${sum}"`
  })
  t.ok(Buffer.byteLength(text) <= 30_720, `${Buffer.byteLength(text)} bytes`)
  const token = /^SVC_TOKEN='(.*)'$/m.exec(text)?.[1] ?? ''
  t.ok(token.length > 20)
  t.notMatch(library, token)
  t.notMatch(library, /node001|10\.141\./, 'it tells nothing of a node')
  // Programs that stay on the node have functions of their own.
  const programs = /<<'SVC_END_OF_SCRIPT'\n.*?^SVC_END_OF_SCRIPT$/gms
  const functions = (of: string) =>
    [...of.replace(programs, '').matchAll(/^(\w+)\(\) [{(]$/gm)].map(([, name]) => name)
  t.strictSame(
    functions(library).filter(name => functions(text).includes(name)),
    [],
    'no function is in both'
  )
  const head = await c.get(`/boot/library/${sum}`, { method: 'HEAD', token: null })
  t.strictSame(
    [head.status, head.text, head.headers['content-length']],
    [200, '', `${Buffer.byteLength(library)}`]
  )
  t.match(await c.get(`/boot/library/${'0'.repeat(64)}`, { token: null }), {
    status: 404,
    body: { message: /no library 0{64}/ }
  })
  t.match(await c.get('/boot/library/x', { token: null }), { status: 404 })
  const preview = await c.get('/config/node/node001/_render/install')
  t.equal(named(preview.text), sum)
})

t.test(
  'a changed part gives it another name, and the old one is served to who has it',
  { buffered: true },
  async t => {
    const { c, templates, script } = await cluster(t)
    const before = named(await script())
    const part = join(templates, 'install/lib/time.sh')
    writeFileSync(part, `${readFileSync(part, 'utf8')}# changed\n`)
    await setTimeout(2100)
    const after = named(await script())
    t.not(after, before)
    t.match((await c.get(`/boot/library/${after}`)).text, '# changed')
    t.notMatch((await c.get(`/boot/library/${before}`)).text, '# changed')
  }
)

// An administrator's own templates, as /etc/svcd/templates may hold them after an upgrade.
t.test(
  'a part that needs a variable, and templates of before, are in the script itself',
  { buffered: true },
  async t => {
    const { c, templates, script } = await cluster(t)
    const part = join(templates, 'install/lib/time.sh')
    const time = readFileSync(part, 'utf8')
    writeFileSync(part, `${time}# clock of {{ node }}\n`)
    await setTimeout(2100)
    const whole = await script()
    t.equal(named(whole), '')
    t.match(whole, /\nunpack\(\) \{\n/)
    t.match(whole, '# clock of node001\n')
    t.match(c.log.join(''), /warn install scripts are not shared: template install\/lib\/time\.sh/)
    writeFileSync(part, time)
    const main = join(templates, 'install/templ_install.cfg')
    const old = readFileSync(main, 'utf8')
      .replace(/\{% if library -%\}[\s\S]*?\{%- else -%\}\n(.*\n)\{%- endif %\}/, '$1')
      .replace(/\{%- if library %\}\n.*\n\{%- endif %\}\n/, '')
    t.notMatch(old, 'if library')
    writeFileSync(main, old)
    rmSync(join(templates, 'install/lib/library.sh'))
    await setTimeout(2100)
    const inline = await script()
    t.equal(named(inline), '')
    t.match(inline, /\nunpack\(\) \{\n/)
  }
)
