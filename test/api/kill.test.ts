import { existsSync, readdirSync, readFileSync, truncateSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { decodeRecord, type Entry } from '../../lib/store/files/log-record.js'
import { objects } from '../support/broken-rules.js'
import type { Child } from '../support/child.js'
import type { Client } from '../support/client.js'
import { Daemon } from '../support/daemon.js'
import { onDisk } from '../support/scratch.js'
import { until } from '../support/until.js'
import { killRounds } from './kill-rounds.js'

/** In every third round one writer writes alone: each of three has its turn. */
const rounds = Number(process.env.SVCD_KILL_ROUNDS ?? (process.env.SVCD_LONG ? 12 : 9))

// A tree and a first start, which makes keys, cost more than a test. Each test leaves it running, has objects
// of its own, and counts those of no other one.
const program = new Daemon({ directory: onDisk(t), set: ['boot.new_nodes=1000000'] })
t.teardown(() => program.kill())
await program.start()

/** The last record of the log about the status of nodes, and where it begins. */
function lastReport(program: Daemon) {
  const log = program.path('state', 'log')
  let last: { readonly file: string; readonly offset: number; readonly entries: readonly Entry[] } | undefined
  for (const name of readdirSync(log).sort()) {
    const file = join(log, name)
    const bytes = readFileSync(file)
    for (let offset = 0; ; ) {
      const found = decodeRecord(bytes, offset)
      if (typeof found !== 'object') break
      const { entries } = found.record
      if (entries.some(({ type }) => type === 'node-status')) last = { file, offset, entries }
      offset = found.end
    }
  }
  return last
}

/**
 * Leaves the state of a crash between the objects of a change and its node status.
 */
function cutLastReport(program: Daemon): void {
  const { file = '', offset } = lastReport(program) ?? {}
  truncateSync(file, offset)
}

// rules 6.2
t.test('a crash between a change of a node and that of its status', async t => {
  const client = program.client()
  const restart = async (name: string, isThere: boolean) => {
    const isLast = (entry: Entry) => entry.name === name && (entry.text !== undefined) === isThere
    await until(() => lastReport(program)?.entries.some(isLast) === true)
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
  const second = await restart('deleted', false)
  t.equal((await second.post('/config/node/deleted', {})).status, 201)
  const nodes = await objects(second, 'node')
  t.strictSame(nodes.deleted?.status, null, 'a new node does not get the status of the one that is gone')
  t.equal((await second.post('/config/node/renamed', { newhostname: 'between' })).status, 204)
  t.equal((await second.post('/config/node/between', { newhostname: 'last' })).status, 204)
  const third = await restart('last', true)
  t.equal((await objects(third, 'node')).last?.status, 'installer.unpack', 'the status follows its node')
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
  const client = program.client()
  await client.post('/config/network/stopped', { network: '10.9.0.0/16' })
  await client.post('/config/group/stopped', { interfaces: [{ interface: 'BOOTIF', network: 'stopped' }] })
  const before = Object.keys(await objects(client, 'node'))
  const slow = slowPost(client, '/config/node/slow', '{"group":"stopped"}')
  await slow.accepted
  const clients = Array.from({ length: 8 }, () => program.client())
  const names = Array.from({ length: 200 }, (_, i) => `quick${i}`)
  const quick = names.map((name, i) =>
    clients[i % 8]?.post(`/config/node/${name}`, { group: 'stopped' }).catch(() => undefined)
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
  t.strictSame(readdirSync(program.path('state', 'log')), [], 'no log is left to finish')
  t.notOk(existsSync(program.path('state', 'lock')), 'the lock is gone')
  const files = readdirSync(program.path('state', 'node'))
  for (const name of ['slow', ...created]) t.ok(files.includes(`${name}.json`), `${name} is on disk`)
  await program.start()
  const reader = program.client()
  const found = Object.keys(await objects(reader, 'node'))
  t.strictSame(
    new Set(found),
    new Set([...before, 'slow', ...created]),
    'a restart finds what was answered with 201'
  )
  reader.close()
})

// rules 11.3
t.test('a second daemon on the same state ends with the pid of the first', async t => {
  const { code, stderr } = await program.launch().ended
  t.equal(code, 1)
  t.match(stderr, new RegExp(`^svcd: .*process ${program.child?.pid}\\n`, 'm'), 'it names the pid')
  const client = program.client()
  t.equal((await client.get('/config/node')).status, 200, 'the first serves on')
  client.close()
})

// rules 11.1
t.test(`kill -9 at ${rounds} random moments`, { timeout: 300_000 + rounds * 10_000 }, async t => {
  await killRounds(t, program, rounds, 3)
})
