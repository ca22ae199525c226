import { linkSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ManagedServer } from '../../lib/services/managed-server.js'
import { until } from '../support/until.js'
import { many } from './cluster.js'
import { Fake, named } from './fake.js'

/** A server that was just killed by what it was given, and nobody has looked yet. */
async function poisoned(t: Test): Promise<Fake> {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  fake.flag('silent')
  await fake.start()
  await fake.restart({ settle: 60_000 })
  fake.asked()
  fake.objects = named('poison')
  fake.service.changed()
  await until(() => !fake.has('running'))
  return fake
}

// rules 10.10
for (const how of ['is stopped', 'crashes'])
  t.test(`a daemon that ${how} before it saw the server come back`, async t => {
    const fake = await poisoned(t)
    await (how === 'crashes' ? fake.crash() : fake.service.close())
    t.match(fake.read(), /poison/, 'what kills the server is in force')
    fake.asked()
    await fake.restart()
    t.same(fake.asked(), ['restart', 'restart'], 'the next one tries it once')
    t.match(fake.read(), /"good"/, 'and puts the last good file in force')
    t.ok(fake.has('running'))
    t.match(fake.service.condition.reason, /fake did not come back: .*old files are in force again/)
    await fake.change(named('better'))
    t.same(fake.service.condition, { ok: true, reason: '' })
    t.same(readdirSync(join(fake.directory, 'etc')), ['main.conf'])
  })

t.test('a daemon that crashes in the midst of a swap: it is taken back whole', async t => {
  const fake = new Fake(t, 'dhcp', 'dnsmasq', many(2))
  await fake.start()
  const good = fake.read()
  const file = (name: string) => join(fake.directory, 'files', name)
  // Two of four were done: the main file is another one, a machine is gone.
  const [fresh, gone] = [file('525400000009.host'), file('525400000001.host')]
  const notes = join(fake.directory, 'state', 'services', 'dhcp.json')
  const trial = { put: [fake.config, fresh], fresh: [fresh], removed: [gone, file('525400000002.host')] }
  writeFileSync(notes, JSON.stringify({ ...JSON.parse(fake.read(notes) ?? ''), due: 'restart', trial }))
  linkSync(fake.config, join(fake.directory, 'etc', '.main.conf.old'))
  await fake.crash()
  rmSync(fake.config)
  writeFileSync(fake.config, '# Written by svcd: poison')
  renameSync(gone, file('.525400000001.host.old'))
  writeFileSync(file('.525400000009.host.new'), '# Written by svcd')
  fake.asked()
  await fake.restart()
  t.equal(fake.read(), good)
  t.same(readdirSync(join(fake.directory, 'files')), ['525400000001.host', '525400000002.host'])
  t.same(fake.asked(), ['restart'], 'never with a half')
  t.ok(fake.service.condition.ok)
  t.ok(fake.has('running'))
})

t.test('a server that does not come up with the old file either is tried again with both', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'), { retry: 30 })
  await fake.start()
  fake.flag('fragile')
  await fake.change(named('poison'))
  t.match(fake.service.condition.reason, /poisoned; and with the old files: .*no good/)
  t.notOk(fake.has('running'))
  fake.unflag('broken')
  await until(() => fake.has('running'))
  await fake.service.settled()
  t.match(fake.read(), /"good"/, 'the last good file was not lost')
  await fake.change(named('better'))
  t.ok(fake.service.condition.ok)
})

t.test('a reload that was done is not done again because a full disk does not take the note', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'), { retry: 30 })
  await fake.start()
  fake.asked()
  fake.flag('nonotes')
  await fake.change(named('better'))
  t.match(fake.service.condition, { ok: false, reason: /cannot be written/ })
  await until(() => fake.service.condition.ok)
  t.same(fake.asked(), ['check', 'restart'])
})

// rules 10.9
t.test('a stop by the API waits for what is under way, and holds', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  await fake.restart({ settle: 300 })
  const { signal } = new AbortController()
  fake.asked()
  fake.objects = named('better')
  fake.service.changed()
  await until(() => fake.seen('restart'))
  await fake.service.control('stop', signal)
  await fake.service.settled()
  t.notOk(fake.has('running'))
  t.match(fake.read(), /"better"/, 'what is good is not taken back')
  t.same(fake.service.condition, { ok: false, reason: 'service fake does not run' })
  t.same(fake.asked(), ['check', 'restart', 'stop'])
})

t.test('a stop between the swap and the reload holds too', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  const unit = new ManagedServer(fake.settings)
  await fake.restart({ unit })
  fake.asked()
  const { signal } = new AbortController()
  let stop: Promise<unknown> = Promise.resolve()
  await unit.withLock(signal, async () => {
    fake.objects = named('better')
    fake.service.changed()
    await until(() => fake.seen('check'))
    // The swap waits for the lock now, and the reload will come after the stop.
    await until(() => unit.users === 2)
    stop = fake.service.control('stop', signal)
  })
  await stop
  await fake.service.settled()
  t.notOk(fake.has('running'))
  t.match(fake.read(), /"better"/)
  t.same(fake.asked(), ['check', 'stop'])
})

t.test('a daemon that stops does not wait for a control socket that is silent', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'svcd-socket-'))
  const controlSocket = join(directory, 'silent')
  const fake = new Fake(t, 'dhcp', 'kea', named('good'), {}, { controlSocket })
  await fake.start()
  const sockets: Socket[] = []
  const server = createServer(socket => sockets.push(socket.on('error', () => {})))
  await new Promise<void>(resolve => server.listen(controlSocket, resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
    rmSync(directory, { recursive: true, force: true })
  })
  fake.objects = named('better')
  fake.service.changed()
  await until(() => sockets.length > 0)
  const since = performance.now()
  await fake.service.close()
  // The socket would be waited for for 30 s.
  t.ok(performance.now() - since < 15_000)
})
