import { createHash } from 'node:crypto'
import { Cursor } from './cursor.js'

const LONGEST = 1024 * 1024 * 1024

/**
 * Returns the SHA-256 of a program for UEFI (PE/COFF) without its signatures, which are for it: firmware and
 * shim extend PCR 4 by it before they start shim, GRUB or a kernel. It hashes all in one turn, which takes a
 * millisecond for a megabyte.
 * @throws TpmError for bytes that are no such program.
 */
export function authenticode(program: Buffer): Buffer {
  const at = (offset: number) => {
    const cursor = new Cursor('program', program, LONGEST, true)
    cursor.take(offset, 'headers')
    return cursor
  }
  const pe = at(0x3c).u32('headers')
  at(pe).expect(0x4550, at(pe).u32('headers'), 'headers', 'PE')
  const sections = at(pe + 6).u16('headers')
  const optional = pe + 24
  const isLarge = at(optional).u16('headers') === 0x20b
  const headers = at(optional + 60).u32('headers')
  const checksum = optional + 64
  const certificates = optional + (isLarge ? 144 : 128)
  const table = optional + at(pe + 20).u16('headers')
  const digest = createHash('sha256')
  const hash = (from: number, length: number) => digest.update(at(from).take(length, 'sections'))
  hash(0, checksum)
  hash(checksum + 4, certificates - checksum - 4)
  hash(certificates + 8, headers - certificates - 8)
  let hashed = headers
  const places = Array.from({ length: sections }, (_, i) => {
    const section = at(table + 40 * i + 16)
    return { length: section.u32('sections'), from: section.u32('sections') }
  })
  for (const { from, length } of places.sort((a, b) => a.from - b.from)) {
    hashed += length
    // Sections that overlap would be hashed again and again.
    if (hashed > program.length) throw at(0).wrong('sections', 'are longer than the program')
    if (length > 0) hash(from, length)
  }
  const signatures = at(certificates + 4).u32('headers')
  if (program.length > hashed + signatures) hash(hashed, program.length - signatures - hashed)
  return digest.digest()
}
