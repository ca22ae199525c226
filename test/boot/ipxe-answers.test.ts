import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const ipxe = { 'user-agent': 'iPXE/1.21.1+ (g1234)' }
const machine = { token: null, source: '10.141.0.1' } as const

// rules 4.35
t.test('iPXE is told in a script why it gets no script', async t => {
  const c = await Controller.start(t, 'boot.manual=networks')
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  for (const form of [
    ...['52:54:00:00:00:01', '52-54-00-00-00-01', '525400000001', '5254.0000.0001'],
    ...['01-52-54-00-00-00-01', '01:52:54:00:00:00:01', '0152-54-00-00-00-01', '01525400000001'],
    '01-52-54-00-00-00-01'.toUpperCase()
  ])
    for (const path of [`/boot/search/mac/${form}`, `/boot/search/${form}`]) {
      const { status, text } = await c.get(path, machine)
      t.equal(status, 200, path)
      t.match(text, 'svcd: booting node node001', path)
    }
  const refused: [path: string, status: number, says: RegExp][] = [
    ['/boot/search/mac/02-52-54-00-00-00-01', 400, /02-52-54-00-00-00-01 is not a MAC address/],
    ['/boot/search/mac/4c4c4544-0042-3510-8054-b4c04f4e3332', 400, /4c4c4544-\S+ is not a MAC address/],
    ['/boot/search/mac/%24%7Buuid%7D', 400, /is not a MAC address/],
    ['/boot/search/mac/%0agoto%20x', 400, /is not a MAC address/],
    ['/boot/search/mac/', 400, /a MAC address is missing at its end/],
    ['/boot/search/mac', 400, /is missing at its end/],
    ['/boot/search', 404, /is missing at its end/],
    ['/boot/manual/group/compute', 404, /is missing at its end/],
    ['/boot/manual/group/compute/', 404, /is missing at its end/],
    ['/boot/manual/hostname/Node_1/52-54-00-00-00-02', 400, /Node_1: a name must be/],
    ['/boot/manual/group/a%20b/52-54-00-00-00-02', 400, /a name must be/]
  ]
  for (const [path, status, says] of refused) {
    const before = c.state()
    t.equal((await c.get(path, machine)).status, status, path)
    const { status: told, text } = await c.get(path, { ...machine, headers: ipxe })
    t.equal(told, 200, path)
    t.match(text, /^#!ipxe\n/)
    const [, sentence = ''] = /^echo svcd: ([^\n]*)\nsleep 15$/m.exec(text) ?? []
    t.match(sentence, says, path)
    t.notMatch(sentence, /[$;&|\n]/, 'nothing of it is a command')
    t.match(text, '/boot || goto failed')
    t.same(c.state(), before)
  }
  const away = { token: null, source: '10.9.9.9' }
  const path = '/boot/manual/hostname/node001/52-54-00-00-00-02'
  t.equal((await c.get(path, away)).status, 403)
  t.match(
    (await c.get(path, { ...away, headers: ipxe })).text,
    /svcd: .* does not let 10\.9\.9\.9 choose a node/
  )
  for (const other of ['/boot/nothing', '/config/node', '/boot/install/node001'])
    t.ok((await c.get(other, { ...away, headers: ipxe })).status >= 400, `${other}: no page of iPXE`)
})

t.test('autoexec.ipxe is served, and no step of a boot', async t => {
  const directory = join(scratch(t), 'ipxe')
  mkdirSync(directory)
  const c = await Controller.start(t, `boot.ipxe_directory=${directory}`)
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  await c.get('/boot/search/mac/52:54:00:00:00:01', machine)
  const steps = async () =>
    (await c.get('/monitor/node/node001/_boots')).body.monitor.boots.node001.boots[0].steps
  const before = await steps()
  t.equal((await c.get('/boot/autoexec.ipxe', machine)).status, 404)
  writeFileSync(join(directory, 'autoexec.ipxe'), '#!ipxe\nchain boot\n')
  t.equal((await c.get('/boot/autoexec.ipxe', machine)).text, '#!ipxe\nchain boot\n')
  t.same(await steps(), before)
  t.equal((await c.get('/boot/other.ipxe', machine)).status, 404)
  t.not((await steps()).length, before.length, 'another file is one')
})
