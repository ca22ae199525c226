import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'

const algorithm = 'aes-256-gcm'
const nonceBytes = 12
const tagBytes = 16

/** Encrypts data at rest: nonce, tag and ciphertext in one base64 text (rules 5.5, 11.8). */
export class SecretBox {
  /** `key` has 32 bytes. Without it, nothing can be sealed or opened before `unlock`. */
  constructor(private key?: Uint8Array) {}

  get hasKey(): boolean {
    return this.key !== undefined
  }

  unlock(key: Uint8Array): void {
    this.key = key
  }

  /**
   * Returns the sealed text. With a `context`, the place of the value, equal values give equal texts, so an
   * unchanged value is not written again; in another place it looks different. Without it every text differs.
   */
  seal(plain: Uint8Array, context?: string): string {
    const nonce = context === undefined ? randomBytes(nonceBytes) : this.#nonceOf(plain, context)
    const cipher = createCipheriv(algorithm, this.#needKey(), nonce, { authTagLength: tagBytes })
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64')
  }

  /** Decrypts a text; throws Error if it was sealed with another key or changed. */
  open(sealed: string): Buffer {
    const bytes = Buffer.from(sealed, 'base64')
    const nonce = bytes.subarray(0, nonceBytes)
    const cipher = createDecipheriv(algorithm, this.#needKey(), nonce, { authTagLength: tagBytes })
    cipher.setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes))
    return Buffer.concat([cipher.update(bytes.subarray(nonceBytes + tagBytes)), cipher.final()])
  }

  /** Whether the text can be opened and, if `plain` is given, holds these bytes. */
  holds(sealed: string, plain?: Uint8Array): boolean {
    try {
      const found = this.open(sealed)
      return plain === undefined || found.equals(plain)
    } catch {
      return false
    }
  }

  /** Different values never share a nonce: it is a keyed hash of value and place. */
  #nonceOf(plain: Uint8Array, context: string): Buffer {
    const hash = createHmac('sha256', this.#needKey()).update(JSON.stringify(['nonce', context]))
    return hash.update(plain).digest().subarray(0, nonceBytes)
  }

  #needKey(): Uint8Array {
    if (this.key === undefined) throw new Error('secret.key is missing')
    return this.key
  }
}
