import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { authenticode } from '../../lib/tpm/authenticode.js'
import { TpmError } from '../../lib/tpm/cursor.js'
import { Random } from '../fuzz/random.js'
import { debianKernel } from '../support/kernel.js'

// rules 15.12

const { image } = await debianKernel()
const kernel = readFileSync(image)
const optional = kernel.readUInt32LE(0x3c) + 24
/** Where a program of 64 bits says where its signatures are, and how long. */
const table = optional + 144
const signatures = kernel.readUInt32LE(table)

t.test('it is the digest that a signature is for', async t => {
  const digest = authenticode(kernel)
  t.ok(signatures > 0 && kernel.indexOf(digest, signatures) > 0, "Debian's signature holds it")
  const unsigned = Buffer.from(kernel.subarray(0, signatures))
  unsigned.fill(0, table, table + 8)
  t.same(authenticode(unsigned), digest, 'the same without the signature')
  unsigned.writeUInt32LE(1, optional + 64)
  t.same(authenticode(unsigned), digest, 'and with another checksum')
  for (const at of [0x100, optional + 60, signatures >> 1, signatures - 1]) {
    const changed = Buffer.from(kernel)
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at)
    const found = at === optional + 60 ? undefined : authenticode(changed)
    t.notSame(found, digest, `byte ${at}`)
  }
  t.notSame(createHash('sha256').update(kernel).digest(), digest)
})

t.test('bytes that are no program are refused', async t => {
  t.throws(() => authenticode(Buffer.alloc(0)), /^program: headers needs 60 bytes, and 0 are left$/)
  t.throws(() => authenticode(Buffer.alloc(1000)), /^program: headers is 0x0000, and not 0x4550: PE$/)
  const overlapping = Buffer.from(kernel)
  overlapping.writeUInt16LE(0xffff, optional - 24 + 6)
  t.throws(
    () => authenticode(overlapping),
    /^program: sections are longer than the program$|^program: \w+ needs/
  )
  const random = new Random(20261127)
  const small = kernel.subarray(0, 8192)
  let refused = 0
  for (let i = 0; i < 5000; i++) {
    const changed = Buffer.from(small.subarray(0, random.is(0.9) ? 8192 : random.below(8192)))
    for (let left = 1 + random.below(3); left > 0 && changed.length > 4; left--)
      changed.writeUInt32LE(
        random.below(2 ** (1 + random.below(32))),
        random.below(Math.min(changed.length - 4, 1024))
      )
    try {
      authenticode(changed)
    } catch (error) {
      refused++
      if (!(error instanceof TpmError)) t.fail(`${error}: ${changed.toString('base64').slice(0, 2000)}`)
    }
  }
  t.ok(refused > 1000)
})
