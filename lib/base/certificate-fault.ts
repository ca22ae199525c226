/** Reasons to refuse a certificate: another name, another time, an untrusted issuer. */
export type CertificateFault = 'name' | 'time' | 'issuer'

/** Codes of Node's TLS; those of chain checks are OpenSSL's (openssl-verification-options). */
const CODES: Readonly<Record<CertificateFault, readonly string[]>> = {
  name: ['ERR_TLS_CERT_ALTNAME_INVALID', 'HOSTNAME_MISMATCH'],
  time: ['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'],
  issuer: [
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'CERT_UNTRUSTED', 'INVALID_CA'],
    ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'],
    ...['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERT_SIGNATURE_FAILURE']
  ]
}

/** Returns a certificate's fault by the error code of a connection; undefined for other errors. */
export function certificateFault(code: string | undefined): CertificateFault | undefined {
  for (const fault of ['name', 'time', 'issuer'] as const)
    if (code !== undefined && CODES[fault].includes(code)) return fault
  return undefined
}
