import { existsSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { brokenRules, objects } from '../support/broken-rules.js'
import type { Child } from '../support/child.js'
import type { Client } from '../support/client.js'
import { Daemon } from '../support/daemon.js'
import { until } from '../support/until.js'
import { Known, prepare, WRITERS, worldOf } from './writers.js'

const rounds = Number(process.env.SVCD_KILL_ROUNDS ?? 20)

async function started(t: Test): Promise<Daemon> {
  const daemon = new Daemon({ directory: t.testdir() })
  t.teardown(() => daemon.kill())
  await daemon.start()
  return daemon
}

const intents = (daemon: Daemon) => readdirSync(daemon.path('state', 'intents'))

// rules 11.1
t.test(`kill -9 at ${rounds} random moments`, { timeout: 60_000 + rounds * 10_000 }, async t => {
  const program = await started(t)
  const first = program.client()
  await prepare(first)
  first.close()
  const all = WRITERS.map(writer => new Known(writer))
  let unfinished = 0
  let starting = 0
  let direct = 0
  // Further rounds until what a kill may leave was seen: with luck none of the first ones leaves it.
  const isSeen = () => unfinished > 0 && direct > 0 && all.every(({ acknowledged }) => acknowledged > 0)
  for (let round = 1; round <= rounds || (!isSeen() && round < 20 * rounds); round++) {
    // One object changed at a time goes to its file directly, if no intent waits; all else through intents.
    const lone = round % 4 === 0 ? all[(round / 4) % 3] : undefined
    if (lone) await until(() => intents(program).length === 0)
    const some = lone ? [lone] : all
    const clients = some.map(() => program.client())
    const writing = Promise.all(some.map((known, i) => known.write(clients[i] as Client)))
    await delay(Math.random() * 250)
    await program.kill()
    t.strictSame((await writing).filter(Boolean), [], `round ${round}: nothing was refused`)
    for (const client of clients) client.close()
    if (intents(program).length > 0) unfinished++
    if (lone && intents(program).length === 0) direct++
    if (round % 5 === 0) {
      // Killed again while it starts, where it may be finishing what was left.
      const starts = program.launch()
      await delay(Math.random() * 400)
      if (!starts.output().includes('next, ask')) starting++
      await starts.kill()
    }
    // A lock that looks as if it had just been taken, for hours: nobody waits until it is stale.
    const lock = program.path('state', 'lock')
    const later = Date.now() / 1000 + 3600
    if (existsSync(lock)) utimesSync(lock, later, later)
    await program.start()
    const reader = program.client()
    const world = await worldOf(reader)
    const wrong = [...all.flatMap(known => known.check(world)), ...(await brokenRules(reader))]
    reader.close()
    t.strictSame(wrong, [], `round ${round}: what was acknowledged is there, and nothing by half`)
  }
  await program.kill()
  const counts = all.map(({ writer, acknowledged }) => `${writer.name} ${acknowledged}`)
  t.comment(`${counts.join(', ')}; ${unfinished} kills left an intent, ${starting} came during a start`)
  for (const { writer, acknowledged } of all) t.ok(acknowledged > 0, `acknowledged: ${writer.name}`)
  t.ok(unfinished > 0, 'some kills came between an intent and its files')
  t.ok(direct > 0, 'some came while an object’s file was written directly')
})

/** What a crash leaves that came after the objects of a change were durable, and before its node status was. */
function cutLastReport(program: Daemon): void {
  const journal = program.path('state', 'node-status.journal')
  const lines = readFileSync(journal, 'utf8').trimEnd().split('\n')
  writeFileSync(
    journal,
    lines
      .slice(0, -1)
      .map(line => `${line}\n`)
      .join('')
  )
}

// rules 6.2
t.test('a crash between a change of a node and that of its status', async t => {
  const program = await started(t)
  const client = program.client()
  const restart = async () => {
    client.close()
    await program.kill()
    cutLastReport(program)
    await program.start()
    const reader = program.client()
    t.teardown(() => reader.close())
    return reader
  }
  for (const name of ['renamed', 'deleted']) {
    await client.post(`/config/node/${name}`, {})
    await client.post(`/monitor/node/${name}`, { state: 'installer.unpack' })
  }
  t.equal((await client.get('/config/node/deleted/_delete')).status, 204)
  const second = await restart()
  t.equal((await second.post('/config/node/deleted', {})).status, 201)
  const nodes = await objects(second, 'node')
  t.strictSame(nodes.deleted?.status, null, 'a new node does not get the status of the one that is gone')
  t.equal((await second.post('/config/node/renamed', { newhostname: 'between' })).status, 204)
  t.equal((await second.post('/config/node/between', { newhostname: 'last' })).status, 204)
  const third = await restart()
  t.equal((await objects(third, 'node')).last?.status, 'installer.unpack', 'the status follows its node')
  await program.kill()
})

/** A POST whose body is held back once the daemon has asked for it. */
function slowPost({ port, token }: Client, path: string, body: string) {
  const socket = connect(port, '127.0.0.1')
  let text = ''
  let heard = () => {}
  socket.setEncoding('utf8').on('data', (piece: string) => {
    text += piece
    heard()
  })
  const says = (start: string) =>
    new Promise<string>((resolve, reject) => {
      heard = () => text.includes(start) && resolve(text)
      socket.on('close', () =>
        text.includes(start) ? resolve(text) : reject(new Error(`closed after ${text}`))
      )
      heard()
    })
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: x\r\nx-access-tokens: ${token}\r\n` +
      `Expect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n`
  )
  return {
    accepted: says('HTTP/1.1 100'),
    finish: () => socket.write(body),
    answer: () => says('HTTP/1.1 20')
  }
}

const refused = (port: number) =>
  new Promise<boolean>(resolve => {
    const socket = connect(port, '127.0.0.1', () => resolve(false))
    socket.on('error', () => resolve(true)).on('connect', () => socket.destroy())
  })

// rules 11.5
t.test('SIGTERM: what is under way is finished and kept, what comes later is not', async t => {
  const program = await started(t)
  const client = program.client()
  await client.post('/config/network/fixed', { network: '10.1.0.0/16' })
  await client.post('/config/group/plain', { interfaces: [{ interface: 'BOOTIF', network: 'fixed' }] })
  const slow = slowPost(client, '/config/node/slow', '{"group":"plain"}')
  await slow.accepted
  const clients = Array.from({ length: 8 }, () => program.client())
  const names = Array.from({ length: 200 }, (_, i) => `quick${i}`)
  const quick = names.map((name, i) =>
    clients[i % 8]?.post(`/config/node/${name}`, { group: 'plain' }).catch(() => undefined)
  )
  await quick[20]
  const signalled = program.child as Child
  signalled.process.kill('SIGTERM')
  await until(() => refused(client.port))
  slow.finish()
  t.match(await slow.answer(), /HTTP\/1\.1 201 /, 'a request whose body comes after the signal is answered')
  const answers = await Promise.all(quick)
  const { code, signal, stderr } = await signalled.ended
  t.strictSame({ code, signal }, { code: 0, signal: null }, 'exit 0', { stderr })
  for (const open of [client, ...clients]) open.close()
  const created = names.filter((_, i) => answers[i]?.status === 201)
  const others = answers.flatMap(answer => (answer && answer.status !== 201 ? [answer.status] : []))
  t.ok(
    others.every(status => status === 503),
    'an answer is 201, or 503 for what came too late',
    { others }
  )
  t.strictSame(intents(program), [], 'no intent is left to finish')
  t.notOk(existsSync(program.path('state', 'lock')), 'the lock is gone')
  const files = readdirSync(program.path('state', 'node'))
  for (const name of ['slow', ...created]) t.ok(files.includes(`${name}.json`), `${name} is on disk`)
  await program.start()
  const reader = program.client()
  const found = Object.keys(await objects(reader, 'node'))
  t.strictSame(new Set(found), new Set(['slow', ...created]), 'a restart finds what was answered with 201')
  reader.close()
  await program.kill()
})

// rules 11.3
t.test('a second daemon on the same state ends with the pid of the first', async t => {
  const program = await started(t)
  const { code, stderr } = await program.launch().ended
  t.equal(code, 1)
  t.match(stderr, new RegExp(`^svcd: .*process ${program.child?.pid}\\n`, 'm'), 'it names the pid')
  const client = program.client()
  t.equal((await client.get('/config/node')).status, 200, 'the first serves on')
  client.close()
  await program.kill()
})
