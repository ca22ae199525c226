import { createPublicKey, hash } from 'node:crypto'
import { badRequest } from '../base/errors.js'
import { isInstaller, type Settings } from './effective.js'

/** Throws 400 where nothing on the node could prove anything (rules 15.1). */
export function checkTrust({ trust, provision_method }: Settings, title: string): void {
  if (trust === 'require' && isInstaller(provision_method))
    throw badRequest(
      `${title}: field "trust" is require, and with the provision_method ${provision_method} an installer ` +
        'asks that proves nothing: set provision_method to torrent or http, or trust to report or none',
      'invalid-field'
    )
}

/** The endorsement key (EK) that a node has by its fields: its SHA-256, or what is wrong with them. */
interface OwnEk {
  readonly sha256?: string
  readonly fault?: string
  /** The TPM was forgotten: only an admin enrols the next one. */
  readonly isForgotten?: boolean
}

/** The `tpm_sha256` of a node whose TPM was forgotten while authorities enrol machines. */
export const forgotten = 'none'

/** Returns the EK that a node is enrolled with; empty without one (rules 15.2). */
export function ekOf({
  tpm_sha256: digest = '',
  tpm_pubkey: key = ''
}: Readonly<Partial<Record<'tpm_sha256' | 'tpm_pubkey', string>>>): OwnEk {
  if (digest === forgotten && key === '') return { isForgotten: true }
  const isDigest = /^[\da-f]{64}$/i.test(digest)
  if (digest !== '' && !isDigest) return { fault: 'its tpm_sha256 is not 64 hexadecimal digits' }
  if (key === '') return isDigest ? { sha256: digest.toLowerCase() } : {}
  const sha256 = digestOf(key)
  if (sha256 === undefined) return { fault: 'its tpm_pubkey is neither PEM nor base64 of a public key' }
  if (isDigest && sha256 !== digest.toLowerCase())
    return { fault: 'its tpm_sha256 is not that of its tpm_pubkey' }
  return { sha256 }
}

/** Whether a node is enrolled with this EK. Each request asks: a stored digest makes it microseconds. */
export const isEnrolledWith = (node: Parameters<typeof ekOf>[0], sha256: string | undefined): boolean =>
  sha256 !== undefined && sha256 === (node.tpm_sha256?.toLowerCase() || ekOf(node).sha256)

function digestOf(text: string): string | undefined {
  try {
    const key = text.includes('-----BEGIN')
      ? createPublicKey(text)
      : createPublicKey({ key: Buffer.from(text, 'base64'), format: 'der', type: 'spki' })
    return hash('sha256', key.export({ format: 'der', type: 'spki' }))
  } catch {
    return undefined
  }
}
