import { X509Certificate } from 'node:crypto'
import { Cursor, TpmError } from './cursor.js'
import type { TpmPublic } from './public.js'

const LONGEST = 4096
/** The extended key usage of EK certificates: tcg-kp-EKCertificate. */
const EK_USAGE = '2.23.133.8.1'
/** The attribute of its alternative name that names the maker of the TPM. */
const MAKER = '2.23.133.2.1'
/**
 * The signature algorithms that are trusted, by the hex of their DER: RSA and ECDSA with SHA-256, 384 or 512,
 * and RSASSA-PSS whose parameters name one of these.
 */
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
  const signer = issuers.find(authority => isSignedBy(certificate, authority))
  if (!signer) throw wrong('signature', 'is not by its issuer')
  if (!signer.ca) throw wrong('issuer', 'is no authority: its certificate does not say CA:TRUE')
  if (!isValid(signer, now)) throw wrong('issuer', `is valid from ${signer.validFrom} to ${signer.validTo}`)
}

const wrong = (field: string, problem: string) => new TpmError('EK certificate', field, problem)

function read(der: Buffer) {
  if (der.length > LONGEST) throw wrong('its size', `is ${der.length} bytes; the most are ${LONGEST}`)
  const { whole, content } = element(new Cursor('EK certificate', der), 'its head')
  const inner = new Cursor('EK certificate', content)
  element(inner, 'its body')
  const algorithm = element(inner, 'algorithm of the signature').content.toString('hex')
  try {
    const certificate = new X509Certificate(whole)
    return { certificate, algorithm, spki: certificate.publicKey.export({ type: 'spki', format: 'der' }) }
  } catch {
    throw wrong('its structure', 'is not that of a certificate')
  }
}

/** The next DER sequence. */
function element(cursor: Cursor, field: string): { readonly whole: Buffer; readonly content: Buffer } {
  const from = cursor.bytes.length - cursor.left
  if (cursor.u8(field) !== 0x30) throw wrong(field, 'is no sequence')
  const short = cursor.u8(field)
  // A certificate of 4 KiB has lengths of two bytes at most.
  const length =
    short < 0x80 ? short : short === 0x81 ? cursor.u8(field) : short === 0x82 ? cursor.u16(field) : undefined
  if (length === undefined) throw wrong(field, `has a length of the form ${short}`)
  const content = cursor.take(length, field)
  return { whole: cursor.bytes.subarray(from, cursor.bytes.length - cursor.left), content }
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
