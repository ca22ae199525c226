import { type ConnectionOptions, createSecureContext, rootCertificates } from 'node:tls'

/** TLS options of Node that decide which certificates are trusted. */
export type Trust = Pick<ConnectionOptions, 'rejectUnauthorized' | 'secureContext'>

/** `verified`: whether certificates are verified; `ca`: authorities in PEM form beside the system's. */
export const trustFor = (verified: boolean, ca: Buffer | undefined): Trust => ({
  rejectUnauthorized: verified,
  // Shared by all connections: Node takes 20 ms to parse all authorities.
  ...(verified && ca ? { secureContext: createSecureContext({ ca: [...rootCertificates, ca] }) } : {})
})

type Fault = 'name' | 'time' | 'issuer'

/** Codes of Node's TLS by fault; those of chain checks are OpenSSL's (openssl-verification-options). */
const CODES: Readonly<Record<Fault, readonly string[]>> = {
  name: ['ERR_TLS_CERT_ALTNAME_INVALID', 'HOSTNAME_MISMATCH'],
  time: ['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'],
  issuer: [
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'CERT_UNTRUSTED', 'INVALID_CA'],
    ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'],
    ...['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERT_SIGNATURE_FAILURE']
  ]
}

const WHAT: Readonly<Record<Fault, string>> = {
  name: 'its certificate is for another name',
  time: 'its certificate has expired, or is not valid yet',
  issuer: 'its certificate is not trusted'
}

const WAYS_OUT = {
  controller: {
    name: 'its [store] url has to name a host of its certificate',
    time: 'renew it there, or set the clocks',
    issuer: 'name its authority in [store] ca of this controller'
  },
  etcd: {
    name: 'name the endpoint as its certificate does',
    time: 'renew it, or set the clock',
    issuer: 'name its authority in [store] ca'
  },
  bmc: {
    name: 'install one that names this address in the BMC',
    time: 'install a new one in the BMC, or set the clock of the controller',
    issuer: 'name its CA in [control] ca_file'
  },
  ldap: {
    name: 'name the server in [auth] ldap_url as its certificate does',
    time: 'install a new one on the server, or set the clock of the controller',
    issuer: 'name its authority in [auth] ldap_ca_certificate'
  },
  oidc: {
    name: 'name the provider in [auth] oidc_issuer as its certificate does',
    time: 'install a new one on the provider, or set the clock of the controller',
    issuer: 'name its authority in [auth] oidc_ca_certificate'
  },
  svcctl: {
    name: 'use an https URL with a name that the certificate lists',
    time: 'install a new one on the controller, or set the clock of this machine',
    issuer: 'name the CA that signed its certificate with --cacert FILE'
  }
} as const satisfies Record<string, Record<Fault, string>>

/** Returns a certificate's fault and the way out by the error code; undefined for other errors. */
export function certificateFault(
  code: string | undefined,
  server: keyof typeof WAYS_OUT
): { readonly what: string; readonly wayOut: string } | undefined {
  const fault = (['name', 'time', 'issuer'] as const).find(one => CODES[one].includes(code ?? ''))
  return fault && { what: WHAT[fault], wayOut: WAYS_OUT[server][fault] }
}
