import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { LogEvent } from '../../lib/tpm/measurements.js'

/**
 * The event log of a virtual machine that booted by PXE with Secure Boot, and the PCRs that its TPM had then:
 * OVMF of Debian 12 with Microsoft's keys, shim 16.1, GRUB 2.06 in lockdown, kernel 6.1. Its grub.cfg was
 * made by hand.
 */
export const bootLog = readFileSync(join(import.meta.dirname, '../tpm/boot.bin'))

const firmware = '3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969'
export const bootPcrs = {
  0: '27fcccfa7f522e228d13ff449bd8c39507a97d7d96b808e9608ddff9b6b0719a',
  1: 'b0215e49d3052bed80c6ac7072b90d1fcaf3d5b228a522aa99845fc26c66c17b',
  2: firmware,
  3: firmware,
  4: 'c335947baae80327191a495089b5db2ef07e5667bfb90ec9f2c079b009a375b2',
  5: 'a5ceb755d043f32431d63e39f5161464620a3437280494b5850dc1b47cc074e0',
  6: firmware,
  7: '75677db6f14082d3bfec4d14bdd75c8d72612ef6914ca99cd5a5997b7a21309d',
  8: '853e165e1b3a91258fa74820ed71ec773dc04eda2efd254d132b9d07a028a8f1',
  9: '877c701cdf7ae24793aa02d5117a95d7dedf7ca6778fcb326d4fb5bff4a1059b',
  14: 'b9c97933fe323334271a718fdf2966e0609afcb793f3b68aaf18fc31ea39dc0a'
}

const u32 = (...numbers: readonly number[]) => {
  const bytes = Buffer.alloc(4 * numbers.length)
  for (const [i, number] of numbers.entries()) bytes.writeUInt32LE(number, 4 * i)
  return bytes
}
const SHA256 = Buffer.from([0x0b, 0])

/** Writes a log of these events, with SHA-256 alone. */
export function logOf(events: readonly LogEvent[]): Buffer {
  const spec = Buffer.concat([
    Buffer.from('Spec ID Event03\0'),
    u32(0),
    Buffer.from([0, 2, 0, 2]),
    u32(1),
    SHA256
  ])
  const header = Buffer.concat([spec, Buffer.from([32, 0, 0])])
  const rest = events.map(({ pcr, type, sha256, data }) =>
    Buffer.concat([u32(pcr, type, 1), SHA256, sha256, u32(data.length), data])
  )
  return Buffer.concat([u32(0, 3), Buffer.alloc(20), u32(header.length), header, ...rest])
}
