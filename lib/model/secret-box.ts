import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

const algorithm = 'aes-256-gcm'
const nonceBytes = 12
const tagBytes = 16

/** Encrypts what lies at rest: nonce, tag and ciphertext in one base64 text (rules 5.5). */
export class SecretBox {
  readonly #key: Uint8Array

  /** `key`: 32 bytes. */
  constructor(key: Uint8Array) {
    this.#key = key
  }

  seal(plain: Uint8Array): string {
    const nonce = randomBytes(nonceBytes)
    const cipher = createCipheriv(algorithm, this.#key, nonce)
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64')
  }

  /** Throws Error when the text was not sealed with this key, or was changed since. */
  open(sealed: string): Buffer {
    const bytes = Buffer.from(sealed, 'base64')
    const cipher = createDecipheriv(algorithm, this.#key, bytes.subarray(0, nonceBytes))
    cipher.setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes))
    return Buffer.concat([cipher.update(bytes.subarray(nonceBytes + tagBytes)), cipher.final()])
  }

  /** Whether the sealed text holds these bytes; false too when it cannot be opened. */
  holds(sealed: string, plain: Uint8Array): boolean {
    try {
      return this.open(sealed).equals(plain)
    } catch {
      return false
    }
  }
}
