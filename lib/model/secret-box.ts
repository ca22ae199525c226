import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'

const algorithm = 'aes-256-gcm'
const nonceBytes = 12
const tagBytes = 16

/** Encrypts what lies at rest: nonce, tag and ciphertext in one base64 text (rules 5.5, 11.8). */
export class SecretBox {
  /** `key`: 32 bytes. Without it nothing can be sealed or opened, until `unlock` gives it. */
  constructor(private key?: Uint8Array) {}

  /** Whether it has its key. */
  get hasKey(): boolean {
    return this.key !== undefined
  }

  /** Gives it the key that it was made without: 32 bytes. */
  unlock(key: Uint8Array): void {
    this.key = key
  }

  /**
   * The sealed text. With a `context` (where the value stands) it is the same for the same value, so that nothing is
   * written when nothing has changed; the same value elsewhere looks different. Without one it is always another.
   */
  seal(plain: Uint8Array, context?: string): string {
    const nonce = context === undefined ? randomBytes(nonceBytes) : this.#nonceOf(plain, context)
    const cipher = createCipheriv(algorithm, this.#needKey(), nonce, { authTagLength: tagBytes })
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64')
  }

  /** Throws Error when the text was not sealed with this key, or was changed since. */
  open(sealed: string): Buffer {
    const bytes = Buffer.from(sealed, 'base64')
    const nonce = bytes.subarray(0, nonceBytes)
    const cipher = createDecipheriv(algorithm, this.#needKey(), nonce, { authTagLength: tagBytes })
    cipher.setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes))
    return Buffer.concat([cipher.update(bytes.subarray(nonceBytes + tagBytes)), cipher.final()])
  }

  /** Whether the sealed text can be opened, and holds these bytes where they are given. */
  holds(sealed: string, plain?: Uint8Array): boolean {
    try {
      const found = this.open(sealed)
      return plain === undefined || found.equals(plain)
    } catch {
      return false
    }
  }

  /** Two values never share a nonce: it is a keyed hash of value and place. */
  #nonceOf(plain: Uint8Array, context: string): Buffer {
    const hash = createHmac('sha256', this.#needKey())
      .update(JSON.stringify(['nonce', context]))
      .update(plain)
    return hash.digest().subarray(0, nonceBytes)
  }

  #needKey(): Uint8Array {
    if (this.key === undefined) throw new Error('secret.key is missing')
    return this.key
  }
}
