import { appendFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ConsoleLogs } from '../../lib/consoles/logs.js'
import { consoleQuote, type Facts } from '../../lib/monitor/boot-facts.js'
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
