import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { type HelperReport, receive, send } from '../../lib/helper/messages.js'
import { serveSocket } from '../../lib/helper/serve.js'
import { kernel, Tree } from '../image/initramfs-tree.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

requireRoot()
requirePrograms('busybox', 'unshare', 'setpriv')

/** Each line costs time. Every day fewer come; those with keys are longer, so that they are as much. */
const isLong = process.env.SVCD_LONG !== undefined
const keyLines = isLong ? 2_000_000 : 200_000
const saidLines = isLong ? 200_000 : 60_000

/**
 * An image whose tool writes lines without end, and how many it has written so far; a helper, and a
 * connection to it.
 */
async function endless(t: Test, to: 'the script’s output' | 'standard error') {
  const directory = scratch(t)
  const tree = new Tree(t, 'dracut')
  const step = to === 'standard error' ? 1000 : keyLines / 20
  const filler = 'x'.repeat(1100)
  const words = to === 'standard error' || isLong ? ` ${'x'.repeat(100)}` : `${filler} ${filler}`
  const descriptor = to === 'standard error' ? '>&2' : '>&3'
  tree.program(
    'dracut',
    `#!/bin/sh
awk 'BEGIN { for (;;) { print "key" ++i "${words}"; if (i % ${step} == 0) { print i >"/var/count"; close("/var/count") } } }' ${descriptor}
`
  )
  const places = {
    ...{ images: dirname(tree.path), files: directory, state: directory, sshKey: '', sshPort: 22 },
    ...{ byRoot: true, units: [] }
  }
  const server = createServer(socket => void serveSocket(socket, places))
  server.listen(join(directory, 'socket'))
  await once(server, 'listening')
  const socket = connect(join(directory, 'socket'))
  await once(socket, 'connect')
  t.teardown(async () => {
    socket.destroy()
    server.close()
    await tree.quiet()
  })
  const args = { tree: tree.path, kernelversion: kernel, dracutmodules: [], kernelmodules: [] }
  send(socket, { id: 1, command: 'initramfs', args })
  const count = () => (existsSync(join(tree.path, 'var/count')) ? Number(tree.read('var/count')) : 0)
  return { tree, socket, count }
}

/** Stops the work, and gives what was told of it. */
async function stopped(socket: Socket, reports: readonly HelperReport[]): Promise<HelperReport | undefined> {
  send(socket, { id: 1, stop: true })
  while (!reports.some(report => 'error' in report)) await sleep(20)
  return reports.at(-1)
}

// rules 9.14
t.test('keys without end that the script does not know take no memory', { timeout: 120_000 }, async t => {
  const { socket, count } = await endless(t, 'the script’s output')
  const reports: HelperReport[] = []
  receive<HelperReport>(socket, report => reports.push(report))
  await until(
    () => count() > 0,
    () => reports
  )
  const before = process.memoryUsage().rss
  let most = before
  for (const begun = count(); count() < begun + keyLines; ) {
    await sleep(20)
    most = Math.max(most, process.memoryUsage().rss)
    if (most - before > 400e6) break
  }
  const grown = Math.round((most - before) / 1e6)
  t.comment(`${count()} lines were written, and ${grown} MB more taken`)
  t.ok(grown < 150, 'of at least 220 MB', { grown })
  t.match(await stopped(socket, reports), { error: /was stopped/ })
})

// rules 9.14
t.test(
  'a program waits while nobody reads what it says, and is told of in part',
  { timeout: 120_000 },
  async t => {
    const { socket, count } = await endless(t, 'standard error')
    socket.pause()
    await until(() => count() > 0)
    for (let last = -1; count() !== last && count() < saidLines; ) {
      last = count()
      await sleep(500)
    }
    const waiting = count()
    t.comment(`${waiting} lines were written while nobody read`)
    t.ok(waiting < 20_000, 'it waits', { waiting })
    const reports: HelperReport[] = []
    receive<HelperReport>(socket, report => reports.push(report))
    socket.resume()
    await until(
      () => count() >= saidLines,
      () => reports.slice(-3)
    )
    t.match(await stopped(socket, reports), { error: /was stopped/ })
    const lines = reports.flatMap(report => ('line' in report ? [report.line] : []))
    t.ok(lines.length > 1000 && lines.length <= 10_000, 'all that was said at first', { lines: lines.length })
    t.equal(lines.at(-1), 'what it says further is left out')
  }
)
