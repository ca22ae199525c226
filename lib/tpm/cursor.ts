/** A structure from a machine that is not what it has to be (rules 15.11): the message names its field. */
export class TpmError extends Error {
  override readonly name = 'TpmError'

  constructor(
    /** `quote`, `signature`, `public area`, `event log`, `endorsement key`, `EK certificate`. */
    readonly structure: string,
    readonly field: string,
    readonly problem: string
  ) {
    // Strangers send these: capturing a stack costs more than the refusal.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(`${structure}: ${field} ${problem}`)
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Digest algorithms of TPM 2.0 that are known here, by their numbers, with the bytes of a digest. */
export const HASHES: ReadonlyMap<number, { readonly name: string; readonly size: number }> = new Map([
  [0x0004, { name: 'sha1', size: 20 }],
  [0x000b, { name: 'sha256', size: 32 }],
  [0x000c, { name: 'sha384', size: 48 }],
  [0x000d, { name: 'sha512', size: 64 }]
])

export const SHA256 = 0x000b
/** Stands for no algorithm, where one may be. */
export const NONE = 0x0010

/**
 * Reads the fields of a structure one after the other: numbers big-endian, as the TPM marshals them, or
 * little-endian, as firmware logs them. Each length is compared with the bytes that are left before its use.
 */
export class Cursor {
  #at = 0

  constructor(
    readonly structure: string,
    readonly bytes: Buffer,
    readonly isLittleEndian = false
  ) {}

  get left(): number {
    return this.bytes.length - this.#at
  }

  /** The next bytes, not copied. */
  take(length: number, field: string): Buffer {
    if (length > this.left) throw this.wrong(field, `needs ${length} bytes, and ${this.left} are left`)
    this.#at += length
    return this.bytes.subarray(this.#at - length, this.#at)
  }

  u8(field: string): number {
    return this.take(1, field).readUInt8()
  }

  u16(field: string): number {
    const bytes = this.take(2, field)
    return this.isLittleEndian ? bytes.readUInt16LE() : bytes.readUInt16BE()
  }

  u32(field: string): number {
    const bytes = this.take(4, field)
    return this.isLittleEndian ? bytes.readUInt32LE() : bytes.readUInt32BE()
  }

  /** A length of 8 bytes; one that no buffer has is refused. */
  u64(field: string): number {
    const bytes = this.take(8, field)
    const length = this.isLittleEndian ? bytes.readBigUInt64LE() : bytes.readBigUInt64BE()
    if (length > 0xffff_ffffn) throw this.wrong(field, `is ${length}`)
    return Number(length)
  }

  /** The bytes of a TPM2B, whose length stands before them. */
  sized(field: string, most: number): Buffer {
    const length = this.u16(field)
    if (length > most) throw this.wrong(field, `has ${length} bytes; the most are ${most}`)
    return this.take(length, field)
  }

  /** Refuses bytes behind the last field. */
  end(): void {
    if (this.left > 0) throw this.wrong('its end', `has ${this.left} bytes too many`)
  }

  wrong(field: string, problem: string): TpmError {
    return new TpmError(this.structure, field, problem)
  }
}

/** A number as messages have it: `0x000b`. */
export const hex = (value: number, digits = 4): string => `0x${value.toString(16).padStart(digits, '0')}`
