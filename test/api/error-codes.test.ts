import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { errorCodes } from '../../lib/base/error-codes.js'
import { Controller } from '../support/controller.js'
import { checkout } from '../support/programs.js'

const lib = join(checkout, 'lib')
const sources = readdirSync(lib, { recursive: true, encoding: 'utf8' })
  .filter(name => name.endsWith('.ts') && name !== 'error-codes.ts')
  .map(name => readFileSync(join(lib, name), 'utf8'))

t.test('each code belongs to one status and is thrown, or is that of the others of its status', t => {
  const all = Object.values(errorCodes).flatMap(codes => Object.keys(codes))
  t.equal(new Set(all).size, all.length)
  for (const codes of Object.values(errorCodes))
    for (const code of Object.keys(codes).slice(1))
      t.ok(
        sources.some(text => text.includes(`'${code}'`)),
        code
      )
  t.end()
})

// rules 1.5
t.test('a refusal has the code of its reason', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute' })
  await c.post('/config/node/n2', { group: 'compute' })
  const { ipaddress, network } = (await c.get('/config/node/n1')).body.config.node.n1.interfaces[0]
  const at = (value: object) => ({ interfaces: [{ interface: 'BOOTIF', network, ...value }] })
  const mac = '52:54:00:00:00:01'
  await c.post('/config/node/n1', at({ macaddress: mac }))
  const posts: [path: string, body: unknown, status: number, code: string][] = [
    ['node/n2', at({ ipaddress }), 400, 'address-taken'],
    ['node/n2', at({ ipaddress: '192.0.2.1' }), 400, 'address-outside-network'],
    ['node/n2', at({ macaddress: mac }), 400, 'mac-taken'],
    ['node/n2', { group: 'none' }, 400, 'unknown-reference'],
    ['node/n2', { netboot: 'perhaps' }, 400, 'invalid-field'],
    ['node/n2', { colour: 'red' }, 400, 'invalid-field'],
    ['node/n2', { newhostname: 'n1' }, 400, 'already-exists'],
    ['node/localhost', { group: 'compute' }, 400, 'invalid-name'],
    ['node/n2', { interfaces: [{ interface: 'a'.repeat(16), network, options: 'vlan=7' }] }, 400, 'too-long'],
    ['group/compute/_delete', undefined, 400, 'in-use'],
    ['node/none/_delete', undefined, 404, 'no-object'],
    ['node/@none', { comment: 'x' }, 404, 'unknown-node-set'],
    ['nothing', {}, 404, 'no-route'],
    ['node/n2', '{', 400, 'invalid-body']
  ]
  for (const [path, body, status, code] of posts) {
    const url = `/config/${path}`
    const answer = await (body === undefined ? c.get(url) : c.post(url, body))
    t.match(answer, { status, body: { code } }, `${path} ${JSON.stringify(body)}: ${answer.text}`)
  }
  const none = await c.get('/config/node', { token: null })
  t.match(none, { status: 401, body: { code: 'unauthenticated' } })
  t.match(await c.get('/config/node', { token: 'x' }), { status: 401, body: { code: 'invalid-token' } })
  t.match(await c.get('/control/action/power/n1/_on'), { status: 404, body: { code: 'bmc-not-configured' } })
})
