import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ConsoleLogs } from '../../lib/consoles/logs.js'
import { consoleQuote, type Facts } from '../../lib/monitor/boot-facts.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

const kilobyte = 1024

function logs(directory: string, logTotal = 1024 * kilobyte) {
  return new ConsoleLogs({
    ...{ directory, logSize: 64 * kilobyte, logTotal },
    hasNode: name => name.startsWith('n'),
    onFailure: reason => {
      throw new Error(reason)
    }
  })
}

// rules 13.6
t.test('logs are rotated, bounded together, and removed with their node', async t => {
  const directory = scratch(t)
  const file = (name: string) => join(directory, name)
  const made = logs(directory)
  await logs(file('none')).sweep()
  for (const name of ['n1.log', 'gone.log', 'gone.log.1', 'conman.conf']) writeFileSync(file(name), 'short\n')
  writeFileSync(file('n2.log'), `${'x'.repeat(99)}\n`.repeat(700))
  writeFileSync(file('n3.log'), `${'flood '.repeat(16)}end\n`.repeat(40_000))
  await made.sweep()
  t.same(
    ['n1.log', 'gone.log', 'gone.log.1', 'conman.conf', 'n2.log.1', 'n3.log.1'].filter(name =>
      existsSync(file(name))
    ),
    ['n1.log', 'conman.conf', 'n2.log.1', 'n3.log.1']
  )
  t.same(
    [statSync(file('n1.log')).size, statSync(file('n2.log')).size, statSync(file('n3.log')).size],
    [6, 0, 0]
  )
  t.equal(statSync(file('n2.log.1')).size, 64 * kilobyte, 'the end of a log is kept')
  t.ok(statSync(file('n3.log.1')).size <= 64 * kilobyte, 'of a flood its end is kept')
  t.match(readFileSync(file('n3.log.1'), 'utf8'), /end\n$/)
  appendFileSync(file('n2.log'), '2026-11-26 20:00:01 new\r\n')
  const tail = await made.tail('n2')
  t.same(
    [tail.at(-1)?.text, tail.at(-2)?.text],
    ['new', 'x'.repeat(99)],
    'lines before the rotation are shown'
  )
  t.equal(tail.at(-1)?.time, new Date('2026-11-26T20:00:01').getTime())
  t.equal(logs(directory).mostBytes(4), 64 * kilobyte)
  t.equal(logs(directory).mostBytes(64), 8 * kilobyte, 'with many nodes each is rotated earlier')
  t.same(await made.tail('n9'), [], 'a node without a log')
})

t.test('links and pipes in the place of logs lead nowhere and stop nothing', { timeout: 20_000 }, async t => {
  const directory = scratch(t)
  const file = (name: string) => join(directory, name)
  const victim = join(scratch(t), 'victim')
  const flood = `${'x'.repeat(99)}\n`.repeat(700)
  for (const name of [victim, file('n2.log'), file('n6.log')]) writeFileSync(name, flood)
  for (const name of ['n1.log', 'n2.log.1', 'n3.log.1']) symlinkSync(victim, file(name))
  await output('mkfifo', [file('n4.log'), file('n5.log.1')])
  mkdirSync(file('n0.log.1'))
  writeFileSync(file('n0.log'), flood)
  const made = logs(directory)
  for (const node of ['n1', 'n3']) await t.rejects(made.tail(node), { code: 'ELOOP' })
  for (const node of ['n4', 'n5']) await t.rejects(made.tail(node), /n[45]\.log.* is not a regular file/)
  await t.rejects(made.sweep(), /n0\.log\.1/, 'a directory there is reported')
  t.equal(readFileSync(victim, 'utf8'), flood, 'no link was followed')
  t.throws(() => readlinkSync(file('n2.log.1')), { code: 'EINVAL' }, 'a rotation replaces a link')
  t.same(
    readdirSync(directory).sort(),
    ['n0.log', 'n0.log.1', 'n2.log', 'n2.log.1', 'n6.log', 'n6.log.1'],
    'the others were removed'
  )
  t.same([statSync(file('n2.log')).size, statSync(file('n6.log')).size], [0, 0], 'the others are rotated')
  writeFileSync(file('.n6.log.1.0123456789ab'), 'left by a kill')
  await t.rejects(made.sweep())
  t.notOk(existsSync(file('.n6.log.1.0123456789ab')))
})

t.test('a line holds nothing that a terminal or a page obeys', async t => {
  const directory = scratch(t)
  mkdirSync(directory, { recursive: true })
  // As conmand writes it, and as a conmand without `sanitize` would.
  writeFileSync(
    join(directory, 'n1.log'),
    '2026-11-26 20:00:01 ^[[1;31mred^[[0m ^[(B<script>\r\n2026-11-26 20:00:02 \u001b]0;x\u0007\u009b2J\u202e\n\n' +
      `2026-11-26 20:00:03 ${'long '.repeat(1000)}\n`
  )
  const lines = (await logs(directory).tail('n1')).map(({ text }) => text)
  t.equal(lines[0], 'red <script>')
  t.notMatch(lines.join(''), /[\u0000-\u001f\u007f-\u009f\u202e]/)
  t.ok((lines[2]?.length ?? 0) <= 501)
})

t.test('a verdict quotes what the console says since the boot began, and no more', async t => {
  const began = Date.parse('2026-11-26T20:00:00Z')
  const facts = (consoleLines: Facts['consoleLines'], steps: readonly object[] = []) =>
    ({ boot: { began, steps }, consoleLines }) as unknown as Facts
  const line = (seconds: number, text: string) => ({ time: began + seconds * 1000, text })
  const panic = 'Kernel panic - not syncing: VFS: Unable to mount root fs'
  t.equal(consoleQuote(facts([line(-60, panic), line(5, 'all is fine')])), '', 'that was the boot before')
  t.equal(consoleQuote(facts([{ time: undefined, text: '<ConMan> Kernel panic' }])), '')
  t.equal(
    consoleQuote(facts([line(5, panic), line(6, '"quoted" (initramfs)'), line(7, panic)])),
    `. Its console says at 2026-11-26 20:00:07 UTC: ${JSON.stringify(panic)}`
  )
  for (const text of [
    'No bootable device.',
    'PXE-E18: Server response timeout',
    '(initramfs) ',
    'Give root password for maintenance',
    'Could not open SAN device: Input/output error (https://ipxe.org/1d704539)',
    'You are in emergency mode. After logging in, type "journalctl -xb"'
  ])
    t.match(consoleQuote(facts([line(1, text)])), JSON.stringify(text.trim()))
  const up = [{ step: 'running', about: '', last: began + 60_000 }]
  t.equal(consoleQuote(facts([line(5, panic)], up)), '', 'its system was up after that')
  t.match(consoleQuote(facts([line(90, panic)], up)), /panic/)
  const many = Array.from({ length: 9 }, (_, i) => line(i, `PXE-E${i}0 ${'x'.repeat(1000)}`))
  t.ok(consoleQuote(facts(many)).length < 750, 'it is short')
})
