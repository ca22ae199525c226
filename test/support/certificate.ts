import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { output, requirePrograms } from './programs.js'

/** Makes the certificate of a pair of files one that ended a day ago. */
export async function expire({ certificate, key }: { certificate: string; key: string }): Promise<void> {
  await output('openssl', [
    ...['x509', '-in', certificate, '-signkey', key, '-days', '-1', '-out', `${certificate}.new`]
  ])
  renameSync(`${certificate}.new`, certificate)
}

/**
 * Makes a certificate for 127.0.0.1 by an authority that `makeCertificate` has made: NAME.crt and NAME.key
 * (0600) in a directory.
 */
export async function makeIssued(
  directory: string,
  name: string,
  authority: { readonly certificate: string; readonly key: string },
  days = 90
) {
  const files = { certificate: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) }
  const [request, extensions] = [join(directory, `${name}.csr`), join(directory, `${name}.ext`)]
  writeFileSync(extensions, `subjectAltName=IP:127.0.0.1,DNS:${name}\n`)
  await output('openssl', [
    ...['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-subj', `/CN=${name}`, '-keyout', files.key, '-out', request]
  ])
  await output('openssl', [
    ...['x509', '-req', '-in', request, '-days', `${days}`, '-extfile', extensions, '-CAcreateserial'],
    ...['-CA', authority.certificate, '-CAkey', authority.key, '-out', files.certificate]
  ])
  return files
}

/**
 * Makes a certificate for 127.0.0.1, `name` and `addresses`, signed by itself: NAME.crt and NAME.key (0600)
 * in a directory.
 */
export async function makeCertificate(
  directory: string,
  name: string,
  days = 90,
  subject = `/CN=${name}`,
  addresses: readonly string[] = []
) {
  requirePrograms('openssl')
  const alternatives = ['IP:127.0.0.1', `DNS:${name}`, ...addresses.map(address => `IP:${address}`)]
  const files = { certificate: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) }
  await output('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-days', `${days}`, '-subj', subject, '-addext', `subjectAltName=${alternatives.join()}`],
    ...['-keyout', files.key, '-out', files.certificate]
  ])
  return files
}
