import { X509Certificate } from 'node:crypto'
import { Cursor, TpmError } from './cursor.js'
import type { TpmPublic } from './keys.js'

const LONGEST = 4096
/** The extended key usage of EK certificates: tcg-kp-EKCertificate. */
const EK_USAGE = '2.23.133.8.1'
/** The attribute of its alternative name that names the maker of the TPM. */
const MAKER = '2.23.133.2.1'
/** The trusted signature algorithms, by the hex of their DER: RSA, ECDSA, RSASSA-PSS; SHA-256, 384, 512. */
const TRUSTED =
  /^(06092a864886f70d01010[bcd]|06082a8648ce3d04030[234]|06092a864886f70d01010a.*60864801650304020[123])/

/**
 * Checks that an EK certificate is for this endorsement key and by one of these authorities, each of which is
 * trusted by itself: its key, that it is one for TPMs, its signature and algorithm, the time of both, and
 * that the issuer is an authority. Bytes behind it, with which some TPMs fill their memory, are left out.
 * @param now milliseconds since 1970.
 * @throws TpmError naming what is not so (rules 15.11).
 */
export function checkEkCertificate(
  der: Buffer,
  ek: TpmPublic,
  authorities: readonly X509Certificate[],
  now = Date.now()
): void {
  const { certificate, algorithm, spki } = read(der)
  if (!spki.equals(ek.key.export({ type: 'spki', format: 'der' })))
    throw wrong('key', 'is another one than the endorsement key that was sent with it')
  const isForTpms = certificate.keyUsage?.includes(EK_USAGE) ?? certificate.subjectAltName?.includes(MAKER)
  if (!isForTpms || certificate.ca) throw wrong('purpose', 'is not that of an endorsement key')
  if (!isValid(certificate, now))
    throw wrong('time', `is from ${certificate.validFrom} to ${certificate.validTo}`)
  const issuers = authorities.filter(authority => certificate.checkIssued(authority))
  if (issuers.length === 0) throw wrong('issuer', 'is none of the authorities that are trusted')
  if (!TRUSTED.test(algorithm)) throw wrong('signature', 'has an algorithm that is not trusted')
  const signers = issuers.filter(authority => isSignedBy(certificate, authority))
  if (signers.length === 0) throw wrong('signature', 'is not by its issuer')
  if (!signers.some(signer => signer.ca)) throw wrong('issuer', 'is no authority: it does not say CA:TRUE')
  if (!signers.some(signer => signer.ca && isValid(signer, now))) throw wrong('issuer', 'is not valid now')
}

const wrong = (field: string, problem: string) => new TpmError('EK certificate', field, problem)

function read(der: Buffer) {
  const cursor = new Cursor('EK certificate', der, LONGEST)
  const content = new Cursor('EK certificate', element(cursor, 'its head'), LONGEST)
  element(content, 'its body')
  const algorithm = element(content, 'algorithm of the signature').toString('hex')
  const bytes = der.subarray(0, der.length - cursor.left)
  try {
    const certificate = new X509Certificate(bytes)
    const spki = certificate.publicKey.export({ type: 'spki', format: 'der' })
    // It also reads a certificate in PEM that stands between other bytes.
    if (certificate.raw.equals(bytes)) return { certificate, algorithm, spki }
  } catch {}
  throw wrong('its structure', 'is not that of a certificate')
}

/** The content of the next DER sequence, whose length has at most two bytes in 4 KiB. */
function element(cursor: Cursor, field: string): Buffer {
  if (cursor.u8(field) !== 0x30) throw wrong(field, 'is no DER sequence')
  const length = cursor.u8(field)
  if (length < 0x80) return cursor.take(length, field)
  if (length !== 0x81 && length !== 0x82) throw wrong(field, 'has a length that does not fit')
  return cursor.take(length === 0x81 ? cursor.u8(field) : cursor.u16(field), field)
}

const isValid = ({ validFrom, validTo }: X509Certificate, now: number) =>
  Date.parse(validFrom) <= now && now <= Date.parse(validTo)

function isSignedBy(certificate: X509Certificate, authority: X509Certificate): boolean {
  try {
    return certificate.verify(authority.publicKey)
  } catch {
    return false
  }
}
