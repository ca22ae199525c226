// The wing for several controllers, lib/peers/, can be deleted with its line in the composition root.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import type { Controller } from './support/controller.js'
import { copyForOneController, importsIn, sourcesIn } from './support/one-controller.js'
import { checkout } from './support/programs.js'

const directory = t.testdir()
const line = copyForOneController(directory, ['lib', 'etc', 'templates', 'test/support', 'package.json'])
t.match(line, /^ {2}etcd: \(\) => import\('\.\/peers\/peers\.js'\)$/, 'it is one line')

const there = new Set(sourcesIn(directory, 'lib'))
const broken = [...there].flatMap(file =>
  importsIn(directory, file)
    .filter(target => !there.has(target) && !there.has(target.replace(/\.ts$/, '.d.ts')))
    .map(target => `${file} imports ${target}`)
)
t.strictSame(broken, [], 'no other file imports it, types included')

await promisify(execFile)(process.execPath, [join(checkout, 'test', 'compile.mjs'), directory])
const support = await import(join(directory, '.cache', 'js', 'test', 'support', 'controller.js'))
const start: typeof Controller.start = (...given) => support.Controller.start(...given)

t.test('one controller serves without it', async t => {
  const c = await start(t)
  t.equal((await c.post('/config/network/n', { network: '10.1.0.0/24' })).status, 201)
  t.equal((await c.post('/config/otherdev/pdu', { network: 'n', ipaddress: '10.1.0.1' })).status, 201)
  await c.restart()
  t.equal((await c.get('/config/otherdev/pdu')).body.config.otherdev.pdu.ipaddress, '10.1.0.1')
  t.same((await c.get('/monitor/primary')).body, { primary: true })
  t.match((await c.get('/monitor/service/svcd')).body, { monitor: { service: { svcd: { status: 'ok' } } } })
  t.equal((await c.get('/config/cluster/c2/_delete')).status, 404)
  t.equal((await c.get('/boot')).status, 200)
})
