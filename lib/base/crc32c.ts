/** The Castagnoli polynomial, reversed. */
const POLYNOMIAL = 0x82f63b78

/** Four tables of 256: the effect of a byte that is followed by 0, 1, 2 or 3 others. */
const TABLE = new Int32Array(4 * 256)
for (let byte = 0; byte < 256; byte++) {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1
  TABLE[byte] = value
}
const at = (index: number) => TABLE[index] as number
for (let i = 256; i < TABLE.length; i++) TABLE[i] = at(at(i - 256) & 255) ^ (at(i - 256) >>> 8)

/** Returns the CRC-32C of bytes; of a text, that of its UTF-8. */
export function crc32c(content: Uint8Array | string): number {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content
  const byte = (index: number) => bytes[index] as number
  let crc = -1
  let i = 0
  for (const end = bytes.length & ~3; i < end; i += 4) {
    crc ^= byte(i) | (byte(i + 1) << 8) | (byte(i + 2) << 16) | (byte(i + 3) << 24)
    crc =
      at(768 + (crc & 255)) ^ at(512 + ((crc >>> 8) & 255)) ^ at(256 + ((crc >>> 16) & 255)) ^ at(crc >>> 24)
  }
  for (; i < bytes.length; i++) crc = at((crc ^ byte(i)) & 255) ^ (crc >>> 8)
  return (crc ^ -1) >>> 0
}
