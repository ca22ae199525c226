/** Why a certificate is not taken: it is for another name, of another time, or of an issuer that is not trusted. */
export type CertificateFault = 'name' | 'time' | 'issuer'

/** The codes of Node's TLS; those of the checks of a chain are OpenSSL's (openssl-verification-options). */
const CODES: Readonly<Record<CertificateFault, readonly string[]>> = {
  name: ['ERR_TLS_CERT_ALTNAME_INVALID', 'HOSTNAME_MISMATCH'],
  time: ['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'],
  issuer: [
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'CERT_UNTRUSTED', 'INVALID_CA'],
    ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'],
    ...['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERT_SIGNATURE_FAILURE']
  ]
}

/**
 * Why the certificate of the other side was not taken, by the code of the error that a connection ended with; undefined
 * where it ended for something else. Each has its own way out, which who connects has to name.
 */
export function certificateFault(code: string | undefined): CertificateFault | undefined {
  for (const fault of ['name', 'time', 'issuer'] as const)
    if (code !== undefined && CODES[fault].includes(code)) return fault
  return undefined
}
