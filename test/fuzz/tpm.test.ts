import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkEkCertificate } from '../../lib/tpm/certificate.js'
import { TpmError } from '../../lib/tpm/cursor.js'
import { makeCredential, parsePublic } from '../../lib/tpm/keys.js'
import { checkQuote, isVouched, readEventLog, replay, secureBootOf } from '../../lib/tpm/measurements.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { startTpm } from '../support/tpm.js'
import { bootLog } from '../support/tpm-log.js'
import { usage } from '../support/turns.js'
import { fuzzSeed, Random } from './random.js'

// Damaged structures of TPMs: each is read, or refused with a TpmError, in a bounded time. Half of
// the damage is in their heads, to lengths, algorithms and counts (rules 15.11, 15.12).

const long = process.env.SVCD_LONG !== undefined
const inputs = Number(process.env.FUZZ_TPM ?? (long ? 1_000_000 : 20_000))
const random = new Random(fuzzSeed())
const again = `again with FUZZ_SEED=${random.seed}`

const authority = scratch(t)
const tpm = await startTpm(t, { authority })
await tpm.tool('createek', '-Q', '-G', 'rsa', '-c', 'rsa.ctx', '-u', 'rsa.pub', '-f', 'tss')
await tpm.tool('createek', '-Q', '-G', 'ecc', '-c', 'ecc.ctx', '-u', 'ecc.pub', '-f', 'tss')
const publics = [tpm.read('rsa.pub'), tpm.read('ecc.pub'), await tpm.key('ak')]
const rsaAk = await tpm.key('rsa-ak', 'rsa2048:rsassa-sha256:null')
const [ek, ak] = [parsePublic(tpm.read('rsa.pub')), parsePublic(tpm.read('ak.pub'))]
const keys = [ak, parsePublic(rsaAk)]
const quotes = [await tpm.quote('ak', 'a1'.repeat(32)), await tpm.quote('rsa-ak', 'b2'.repeat(32))]
const certificates = [tpm.read('ek-rsa2048.crt'), tpm.read('ek-secp384r1.crt')]
const authorities = [new X509Certificate(readFileSync(join(authority, 'issuer.pem')))]
const pieces = [...publics, rsaAk, ...quotes.flat(), ...certificates, bootLog]

/** Numbers at which lengths and counts break. */
const NUMBERS = [
  0, 1, 2, 3, 4, 0x10, 0x20, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0xffffffff
]

/** A copy, mostly damaged in one to four places, of which half are in its head. */
function damaged(bytes: Buffer): Buffer {
  let copy = Buffer.from(bytes)
  if (random.is(0.02)) return copy
  for (let left = 1 + random.below(4); left > 0 && copy.length > 4; left--) {
    const at = random.below(random.is(0.5) ? Math.min(copy.length, 120) : copy.length)
    switch (random.below(6)) {
      case 0:
        copy.writeUInt8(random.below(256), at)
        break
      case 1:
      case 2: {
        const size = random.pick([1, 2, 4])
        const number = random.is(0.3) ? random.below(2 ** 32) : random.pick(NUMBERS)
        const place = Math.min(at, copy.length - size)
        if (random.is(0.5)) copy.writeUIntBE(number % 256 ** size, place, size)
        else copy.writeUIntLE(number % 256 ** size, place, size)
        break
      }
      case 3:
        copy = copy.subarray(0, at)
        break
      case 4: {
        const other = random.pick(pieces)
        const from = random.below(other.length)
        copy = Buffer.concat([
          copy.subarray(0, at),
          other.subarray(from, from + random.below(80)),
          copy.subarray(at)
        ])
        break
      }
      default:
        copy = Buffer.concat([copy.subarray(0, at), copy.subarray(at + 1 + random.below(8))])
    }
  }
  return copy
}

/** A log of many small events, of few large ones, or of anything, up to what is read. */
function large(): Buffer {
  const parts = [bootLog]
  let left = 256 * 1024 - bootLog.length
  const size = random.pick([0, 1, 60, 5000, 250_000])
  while (left > 50 + size && parts.length < 4200) {
    const type = random.pick([1, 3, 4, 8, 0x0d, 0x80000001, 0x80000003, 0x800000e0])
    const head = Buffer.alloc(50)
    head.writeUInt32LE(random.below(24), 0)
    head.writeUInt32LE(type, 4)
    head.writeUInt32LE(1, 8)
    head.writeUInt16LE(0x0b, 12)
    head.writeUInt32LE(size, 46)
    parts.push(head, Buffer.alloc(size, random.pick([0, 0x20, 0x41, 0xff])))
    left -= head.length + size
  }
  return Buffer.concat(parts)
}

const readLog = (log: Buffer) => {
  const found = readEventLog(log)
  replay(found)
  secureBootOf(found)
  for (const event of found) isVouched(event)
}

const parsers: readonly (readonly [
  name: string,
  make: () => readonly Buffer[],
  read: (...input: Buffer[]) => void
])[] = [
  [
    'public area',
    () => [damaged(random.pick([...publics, rsaAk]))],
    (bytes = ek.name) => void parsePublic(bytes)
  ],
  [
    'quote',
    () => random.pick(quotes).map(bytes => (random.is(0.5) ? damaged(bytes) : bytes)),
    (quote = ek.name, signature = ek.name) => void checkQuote(random.pick(keys), quote, signature)
  ],
  [
    'event log',
    () => [random.is(0.02) ? large() : damaged(bootLog.subarray(0, random.pick([900, 14_443])))],
    (log = ek.name) => readLog(log)
  ],
  [
    'certificate',
    () => [damaged(random.pick(certificates))],
    (der = ek.name) => checkEkCertificate(der, ek, authorities)
  ],
  [
    'credential',
    () => [damaged(publics[random.below(2)] ?? rsaAk)],
    (bytes = ek.name) => void makeCredential(parsePublic(bytes), ak.name, Buffer.alloc(32))
  ]
]

t.test('damaged structures are read, or refused with a TpmError', async t => {
  const faults: string[] = []
  const counts = new Map<string, { read: number; refused: number; slowestMs: number }>()
  const used = usage()
  let i = 0
  for (; i < inputs && faults.length < 5; i++) {
    const [name, make, read] = random.pick(parsers)
    const count = counts.get(name) ?? { read: 0, refused: 0, slowestMs: 0 }
    counts.set(name, count)
    const input = make()
    const before = used()
    try {
      read(...input)
      count.read++
    } catch (error) {
      count.refused++
      const isMeant = error instanceof TpmError && /^[a-zA-Z ]+: .{5,200}$/.test(error.message)
      if (!isMeant)
        faults.push(`${name}: ${error}: ${input.map(bytes => bytes.toString('base64').slice(0, 4000))}`)
    }
    count.slowestMs = Math.max(count.slowestMs, used() - before)
  }
  const told = [...counts].map(
    ([name, { read, refused, slowestMs }]) => `${name} ${read}/${refused}, ${slowestMs.toFixed(1)} ms`
  )
  proof('structures of TPMs', {
    tried: i,
    crashes: faults.length,
    note: `seed ${random.seed}, read/refused and slowest: ${told.join('; ')}`
  })
  t.comment(told.join('; '))
  t.same(faults, [], again)
  t.equal(counts.size, parsers.length)
  for (const [name, { read, refused, slowestMs }] of counts) {
    t.ok(read > 0 && refused > 0, `${name}: some are read, some refused: ${read}, ${refused}; ${again}`)
    // CPU of the thread, generously: the largest log that is read takes some 20 ms.
    t.ok(slowestMs < 1000, `${name}: the slowest took ${slowestMs} ms; ${again}`)
  }
})
