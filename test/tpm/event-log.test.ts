import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  isVouched,
  type LogEvent,
  readEventLog,
  replay,
  secureBootOf,
  textOf
} from '../../lib/tpm/measurements.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { startTpm } from '../support/tpm.js'
import { bootLog, bootPcrs, logOf } from '../support/tpm-log.js'

// rules 15.12

const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest()
const hex = (values: ReadonlyMap<number, Buffer>) =>
  Object.fromEntries([...values].map(([pcr, value]) => [pcr, value.toString('hex')]))
const events = readEventLog(bootLog)
const SECURE_BOOT = events.find(event => textOf(event) === 'SecureBoot') as LogEvent

t.test('a boot by OVMF, shim and GRUB: its PCRs follow from its log', async t => {
  t.same(hex(replay(events)), bootPcrs)
  t.equal(secureBootOf(events), true)
  const texts = events
    .filter(event => isVouched(event) && event.pcr >= 8)
    .map(event => `${event.pcr} ${textOf(event)}`)
  t.same(texts, [
    '8 grub_cmd: [ -e (tftp,10.0.2.2)/grub/x86_64-efi/grub.cfg ]',
    '8 grub_cmd: source (tftp,10.0.2.2)/grub/grub.cfg',
    '8 grub_cmd: set timeout=0',
    '8 grub_cmd: serial --unit=0',
    '8 grub_cmd: terminal_output console serial',
    '8 grub_cmd: echo GRUB: mac 52:54:00:12:34:56, lockdown y',
    '8 grub_cmd: linux (tftp,10.0.2.2)/vmlinuz console=ttyS0 panic=1 svc.node=node001',
    '8 kernel_cmdline: (tftp,10.0.2.2)/vmlinuz console=ttyS0 panic=1 svc.node=node001',
    '8 grub_cmd: initrd (tftp,10.0.2.2)/initrd.img',
    '8 grub_cmd: boot'
  ])
  const names = events
    .filter(({ pcr }) => pcr === 7 || pcr === 9 || pcr === 14)
    .map(textOf)
    .filter(text => text !== '')
  t.same(names, [
    ...['SecureBoot', 'PK', 'KEK', 'db', 'dbx', 'db', 'MokList', 'MokListX', 'SbatLevel', 'MokListTrusted'],
    ...['MokListRT', '(tftp,10.0.2.2)/grub/grub.cfg', '(tftp,10.0.2.2)/vmlinuz', '(tftp,10.0.2.2)/initrd.img']
  ])
  t.same(logOf(events), bootLog, 'the tests write a log as firmware does')
})

t.test('the tool of tpm2-tools reads the same from logs that are written here', async t => {
  const file = join(scratch(t), 'log')
  for (const log of [bootLog, logOf(events.slice(0, 9)), logOf([...events, ...events])]) {
    writeFileSync(file, log)
    const told = (await output('tpm2_eventlog', [file])).split('\npcrs:\n')[1] ?? ''
    const lines = [...told.matchAll(/^ {4}(\d+) *: 0x([0-9a-f]{64})$/gm)]
    t.same(Object.fromEntries(lines.map(([, pcr, value]) => [pcr, value])), hex(replay(readEventLog(log))))
  }
})

t.test('a TPM that another locality started: PCR 0 begins with its number', async t => {
  const tpm = await startTpm(t, { locality: 3 })
  await tpm.tool('pcrextend', `0:sha256=${'5a'.repeat(32)}`)
  await tpm.tool('pcrread', 'sha256:0', '-o', 'value')
  const start = { pcr: 0, type: 3, sha256: Buffer.alloc(32), data: Buffer.from('StartupLocality\0\x03') }
  const next = { pcr: 0, type: 4, sha256: Buffer.alloc(32, 0x5a), data: Buffer.alloc(0) }
  t.same(replay([start, next]).get(0), tpm.read('value'))
  t.notSame(replay([next]).get(0), tpm.read('value'))
})

t.test('events that extend nothing', async t => {
  // Newer firmware says by such an event how its reference measurements are called.
  const told = { pcr: 0xffffffff, type: 3, sha256: Buffer.alloc(32), data: Buffer.from('SP800-155 Event3') }
  t.same(hex(replay(readEventLog(logOf([told, ...events])))), bootPcrs)
})

t.test('Secure Boot is told by what the firmware measured alone', async t => {
  const at = events.indexOf(SECURE_BOOT)
  const changed = (change: Partial<LogEvent>) =>
    events.map((event, i) => (i === at ? { ...event, ...change } : event))
  const off = Buffer.from(SECURE_BOOT.data)
  off.writeUInt8(0, off.length - 1)
  t.equal(secureBootOf(changed({ data: off, sha256: sha256(off) })), false)
  t.equal(secureBootOf(changed({ data: off })), undefined, 'data that the digest is not of')
  t.equal(
    secureBootOf(changed({ sha256: sha256(off) })),
    undefined,
    'it was off, and the log says that it was on'
  )
  t.equal(secureBootOf(changed({ pcr: 1 })), undefined)
  t.equal(secureBootOf([...events.slice(0, at), SECURE_BOOT, ...events.slice(at)]), undefined, 'told twice')
  t.equal(secureBootOf([]), undefined)
  // It was off: the system that runs has called that event otherwise, and has extended PCR 7 by a better one.
  const hidden = changed({ sha256: sha256(off), data: Buffer.from('x'), type: 0x80000008 })
  t.equal(secureBootOf([...hidden, SECURE_BOOT]), undefined, 'a better one after the boot')
  const noSeparator = events.filter(({ type }) => type !== 4)
  t.equal(secureBootOf(noSeparator), undefined)
})

t.test('texts that no PCR shows', async t => {
  const event = (type: number, text: string, of: string): LogEvent => ({
    ...{ pcr: 8, type, sha256: sha256(of), data: Buffer.from(`${text}\0`) }
  })
  t.equal(isVouched(event(0x0d, 'grub_cmd: boot', 'boot')), true)
  t.equal(isVouched(event(0x0d, 'kernel_cmdline: /vmlinuz a: b', '/vmlinuz a: b')), true)
  t.equal(isVouched(event(0x0d, 'grub_cmd: boot', 'halt')), false)
  t.equal(isVouched(event(0x0d, 'all is well: boot', 'boot')), false)
  t.equal(isVouched(event(0x0c, 'grub_cmd: boot', 'boot')), false)
  const [shown] = readEventLog(logOf([event(0x0d, `a\x1b[31m\n\u202e${'b'.repeat(70_000)}`, '')]))
  t.equal(shown && textOf(shown), `a [31m  ${'b'.repeat(290)}`, 'printable, and cut')
})

t.test('logs that are refused', async t => {
  const one = logOf(events.slice(0, 1))
  const head = one.subarray(0, 65)
  const changed = (at: number, ...values: number[]) => {
    const copy = Buffer.from(one)
    copy.set(values, at)
    return copy
  }
  const many = logOf(
    Array.from({ length: 1537 }, () => ({ pcr: 1, type: 4, sha256: sha256(''), data: Buffer.alloc(0) }))
  )
  const refused: readonly (readonly [Buffer, RegExp])[] = [
    [Buffer.alloc(256 * 1024 + 1), /^event log: its size is 262145 bytes; the most are 262144$/],
    [Buffer.alloc(0), /its header needs 28 bytes, and 0 are left/],
    [changed(28, 0xff, 0xff, 0xff, 0xff), /its header needs 4294967295 bytes/],
    [changed(46, 0x32), /its header is not that of TPM 2.0/],
    [changed(56, 9), /number of algorithms is 9; the most are 8/],
    [changed(60, 4), /its algorithms have no sha256: this bank is off/],
    [changed(62, 33), /its algorithms have no sha256/],
    [changed(65, 24), /event 1 is of PCR 24; the last one is 23/],
    [changed(73, 2), /event 1 has 2 digests; the most are 1/],
    [changed(73, 0), /event 1 has no sha256/],
    [changed(77, 4), /event 1 has a digest of 0x0004/],
    [one.subarray(0, -1), /event 1 needs \d+ bytes, and \d+ are left/],
    [Buffer.concat([one, Buffer.alloc(3)]), /event 2 needs 4 bytes, and 3 are left/],
    [many, /its events are more than 1536/]
  ]
  t.same(readEventLog(head), [])
  for (const [log, message] of refused) t.throws(() => readEventLog(log), message, String(message))
  for (const end of one.keys())
    if (end !== 65) t.throws(() => readEventLog(one.subarray(0, end)), /^event log: /)
})
