/** A structure from a machine that is not what it has to be (rules 15.11): the message names its field. */
export class TpmError extends Error {
  override readonly name = 'TpmError'

  constructor(structure: string, field: string, problem: string) {
    // Strangers send these: capturing a stack costs more than the refusal.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(`${structure}: ${field} ${problem}`)
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Returns the sentence of a TpmError in the place of a result. */
export function tried<T>(read: () => T): T | string {
  try {
    return read()
  } catch (error) {
    if (error instanceof TpmError) return error.message
    throw error
  }
}

/** Number of an algorithm of TPM 2.0. */
export const SHA256 = 0x000b
/** Stands for no algorithm, where one may be. */
export const NONE = 0x0010
/** The signature schemes of attestation keys. */
export const RSASSA = 0x0014
export const ECDSA = 0x0018

/**
 * Reads the fields of a structure of at most so many bytes one after the other: numbers big-endian, as the
 * TPM marshals them, or little-endian, as firmware logs them. No length is used before it was compared.
 */
export class Cursor {
  #at = 0

  constructor(
    readonly structure: string,
    readonly bytes: Buffer,
    most: number,
    readonly isLittleEndian = false
  ) {
    if (bytes.length > most) throw this.wrong('its size', `is ${bytes.length} bytes; the most are ${most}`)
  }

  get left(): number {
    return this.bytes.length - this.#at
  }

  /** The next bytes, not copied. */
  take(length: number, field: string): Buffer {
    if (length < 0 || length > this.left)
      throw this.wrong(field, `needs ${length} bytes, and ${this.left} are left`)
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

  /** A number that has to be this one. */
  expect(value: number, found: number, field: string, meaning: string): void {
    if (found !== value) throw this.wrong(field, `is ${hex(found)}, and not ${hex(value)}: ${meaning}`)
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
export const hex = (value: number): string => `0x${value.toString(16).padStart(4, '0')}`
