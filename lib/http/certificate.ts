import { constants, createPrivateKey, hash, type KeyObject, X509Certificate } from 'node:crypto'
import { realpath, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { dirname } from 'node:path'
import { createSecureContext, rootCertificates, type SecureContext } from 'node:tls'
import { Background } from '../base/background.js'
import { runFairly } from '../base/concurrency.js'
import type { Log } from '../base/log.js'
import { readRegularFile, refuseLooseMode } from '../disk/file.js'

const bothOfOne = 'put both files of one certificate there'

const DAY_MS = 86_400_000
/** Renewal programs act earlier than this before expiry. */
const SOON_MS = 14 * DAY_MS
const EVERY_MS = 5000

/** Without RSA key exchange: that has no forward secrecy, and its work comes after the first message. */
const CIPHERS = [
  ...['TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256', 'TLS_AES_128_GCM_SHA256'],
  ...['ECDHE-ECDSA-AES128-GCM-SHA256', 'ECDHE-RSA-AES128-GCM-SHA256', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
  ...['ECDHE-RSA-AES256-GCM-SHA384', 'ECDHE-ECDSA-CHACHA20-POLY1305', 'ECDHE-RSA-CHACHA20-POLY1305']
].join(':')

/** PEM files of a certificate with its intermediates, and of its private key. */
export interface CertificateFiles {
  readonly certificate: string
  readonly key: string
  /** A PEM file with authorities, one of which may have signed the certificate. */
  readonly authorities?: string
}

interface CertificatePair {
  readonly context: SecureContext
  readonly certificate: X509Certificate
  /** The issuer of the last certificate sent, if its root is neither sent nor known. */
  readonly unknownRoot: string | undefined
}

/** The faults of a pair, each with its file and what to do. */
export class CertificateError extends Error {
  constructor(readonly reasons: readonly { readonly of: 'certificate' | 'key'; readonly message: string }[]) {
    super(reasons.map(({ message }) => message).join('; '))
  }
}

/**
 * Reads and checks a certificate and its key. Throws CertificateError with all faults: unreadable, no PEM, no
 * match, or files that others may read or replace.
 */
export async function readPair(files: CertificateFiles): Promise<CertificatePair> {
  const [certificate, key] = await Promise.allSettled([readCertificate(files), readKey(files)])
  const reasons = Object.entries({ certificate, key }).flatMap(([of, found]) =>
    found.status === 'rejected'
      ? [{ of: of as 'certificate' | 'key', message: (found.reason as Error).message }]
      : []
  )
  if (certificate.status === 'rejected' || key.status === 'rejected') throw new CertificateError(reasons)
  return paired(files, certificate.value, key.value)
}

async function readCertificate({ certificate: file, authorities = '' }: CertificateFiles) {
  const bytes = await read(file)
  await refuseReplacement(file, 'certificate')
  const certificate = parsed(file, 'certificate', () => new X509Certificate(bytes))
  // The users of this file report its faults.
  const known = authorities === '' ? '' : await readRegularFile(authorities).then(String, () => '')
  return { certificate, ...(await runFairly(withRoot(String(bytes), known))) }
}

const pem = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Yields after each one: a bundle of a thousand takes half a second. */
function* certificatesIn(text: string): Generator<void, X509Certificate[]> {
  const found: X509Certificate[] = []
  for (const one of text.match(pem) ?? []) {
    yield
    try {
      found.push(new X509Certificate(one))
    } catch {
      // Others may be sound.
    }
  }
  return found
}

/**
 * Appends the missing authorities up to the root: an iPXE built with `TRUST=` knows the root's fingerprint
 * alone, and looks for it in the chain it is sent (rules 4.36).
 */
function* withRoot(text: string, authorities: string) {
  const own = yield* certificatesIn(text)
  // Node's roots come last: they are parsed only when no other certificate is the signer.
  const bundles = [authorities, rootCertificates.join('\n')]
  const read: X509Certificate[][] = [own]
  const added: string[] = []
  let last = own[0]
  // Authorities that have signed one another would loop forever.
  for (let i = 0; last && !last.checkIssued(last) && i < 10; i++) {
    const signer = (one: X509Certificate) =>
      one.fingerprint256 !== last?.fingerprint256 && last?.checkIssued(one) && last.verify(one.publicKey)
    let next = read.flat().find(signer)
    while (!next && bundles.length > 0) {
      const bundle = yield* certificatesIn(bundles.shift() ?? '')
      read.push(bundle)
      next = bundle.find(signer)
    }
    if (!next) return { bytes: [text, ...added].join('\n'), unknownRoot: last.issuer.replaceAll('\n', ', ') }
    if (!own.includes(next)) added.push(String(next))
    last = next
  }
  return { bytes: [text, ...added].join('\n'), unknownRoot: undefined }
}

async function readKey({ key: file }: CertificateFiles) {
  const bytes = await read(file)
  await refuseLooseMode(file, 0o037, '0640', 'others than its owner and its group may read or change it')
  await refuseReplacement(file, 'key')
  const key: KeyObject = parsed(file, 'private key without a passphrase', () => createPrivateKey(bytes))
  return { bytes, key }
}

/** Checks the directory of a link and that of its target. */
async function refuseReplacement(file: string, what: string): Promise<void> {
  for (const path of new Set([file, await realpath(file)]))
    await refuseLooseMode(dirname(path), 0o022, '0755', `others than its owner may replace the ${what} in it`)
}

function paired(
  files: CertificateFiles,
  { bytes: cert, certificate, unknownRoot }: Awaited<ReturnType<typeof readCertificate>>,
  { bytes, key }: Awaited<ReturnType<typeof readKey>>
): CertificatePair {
  if (!certificate.checkPrivateKey(key)) {
    const message = `${files.key} is not the key of ${files.certificate}: ${bothOfOne}`
    throw new CertificateError([{ of: 'key', message }])
  }
  try {
    const context = createSecureContext({
      ...{ cert, key: bytes, ciphers: CIPHERS, minVersion: 'TLSv1.2', honorCipherOrder: true },
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION
    })
    return { context, certificate, unknownRoot }
  } catch (error) {
    const message = `${files.certificate} cannot be used for TLS: ${reasonOf(error)}; have it issued anew`
    throw new CertificateError([{ of: 'certificate', message }])
  }
}

async function read(file: string): Promise<Buffer> {
  try {
    return await readRegularFile(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EACCES' || code === 'EPERM')
      throw new Error(
        `${file} may not be read by the user of svcd (${code}); ` +
          `give it the group svcd: chgrp svcd ${file} && chmod 0640 ${file}`
      )
    if (code === 'ENOENT' || code === 'ENOTDIR')
      throw new Error(
        `there is no file ${file}; put it there, or leave [http] tls_certificate and tls_key empty`
      )
    throw new Error(message.includes(file) ? message : `${file}: ${message}`)
  }
}

function parsed<T>(file: string, what: string, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    throw new Error(`${file} holds no ${what} in PEM form (${reasonOf(error)}): put the whole file there`)
  }
}

const reasonOf = (error: unknown) => (error as { reason?: string }).reason ?? (error as Error).message

/** Why clients refuse the certificate now or soon; undefined if they do not. `now`: ms since 1970. */
export function expiry({ certificate }: Pick<CertificatePair, 'certificate'>, now: number) {
  const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)]
  if (now > to) return { over: true, text: `has expired at ${day(to)}: clients refuse it; renew it` }
  if (now < from)
    return { over: true, text: `is not valid before ${day(from)}: clients refuse it; check the clock` }
  if (to - now > Math.min(SOON_MS, (to - from) / 3)) return undefined
  return { over: false, text: `expires at ${day(to)}: renew it; svcd takes the new one by itself` }
}

const day = (ms: number) => new Date(ms).toISOString().replace(/T(\d\d:\d\d).*/, ' $1 UTC')

/** Why iPXE may refuse the certificate; undefined if its root is sent or known. */
export function lacksRoot(
  { unknownRoot }: Pick<CertificatePair, 'unknownRoot'>,
  { certificate }: CertificateFiles
): string | undefined {
  return unknownRoot === undefined
    ? undefined
    : `iPXE with TRUST= takes a certificate whose root it is sent: ` +
        `append ${unknownRoot} to ${certificate}, or name its file in [store] ca`
}

/** Whether the certificate is valid for this host name or address. */
export function isFor({ certificate }: Pick<CertificatePair, 'certificate'>, host: string): boolean {
  return (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) !== undefined
}

interface CertificateOptions {
  readonly log: Log
  /** Whether nodes use it, as their URL is https. */
  readonly forNodes?: boolean
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Interval between two looks at the files. */
  readonly everyMs?: number
}

/**
 * The certificate for handshakes, read again whenever its files change (written, renamed, a link set). A
 * faulty pair is logged once and leaves the old one in force (rules 2.18).
 */
export class Certificate {
  readonly #watch: Background
  #lastStamp: string
  /** Called when another pair is in force. */
  onChange: () => void = () => {}
  #warnedMs = Number.NEGATIVE_INFINITY

  private constructor(
    private readonly files: CertificateFiles,
    private pair: CertificatePair,
    /** The stamp at the last read. */
    private stampAtRead: string,
    private readonly options: CertificateOptions
  ) {
    this.#lastStamp = stampAtRead
    this.#watch = new Background({
      work: () => this.#look(),
      everyMs: options.everyMs ?? EVERY_MS,
      onFailure: reason =>
        options.log.error(`TLS goes on with the certificate that was read before: ${reason}`)
    })
    this.#warnOfExpiry()
    const lacks = options.forNodes ? lacksRoot(pair, files) : undefined
    if (lacks) options.log.warn(lacks)
    this.#watch.wake()
  }

  /** Reads both files. Throws as `readPair` does. */
  static async open(files: CertificateFiles, options: CertificateOptions): Promise<Certificate> {
    const stamp = await stampOf(files)
    return new Certificate(files, await readPair(files), stamp, options)
  }

  get context(): SecureContext {
    return this.pair.context
  }

  /** SHA-256 in hex of its public key (SubjectPublicKeyInfo), which nodes pin. */
  get pin(): string {
    const spki = this.pair.certificate.publicKey.export({ type: 'spki', format: 'der' })
    return hash('sha256', spki)
  }

  close(): Promise<void> {
    return this.#watch.close()
  }

  async #look(): Promise<void> {
    this.#warnOfExpiry()
    const stamp = await stampOf(this.files)
    const settled = stamp === this.#lastStamp
    this.#lastStamp = stamp
    // A stamp that has just changed may be half of a change.
    if (!settled || stamp === this.stampAtRead) return
    this.pair = await readPair(this.files)
    this.stampAtRead = stamp
    const until = day(Date.parse(this.pair.certificate.validTo))
    this.options.log.info(`TLS has a new certificate from ${this.files.certificate}, valid until ${until}`)
    this.#warnedMs = Number.NEGATIVE_INFINITY
    this.#warnOfExpiry()
    this.onChange()
  }

  /** At most once a day. */
  #warnOfExpiry(): void {
    const now = this.options.now()
    if (Math.abs(now - this.#warnedMs) < DAY_MS) return
    this.#warnedMs = now
    const found = expiry(this.pair, now)
    if (found) this.options.log.warn(`${this.files.certificate} ${found.text}`)
  }
}

/** A stamp that changes with the files; links are followed. */
async function stampOf({ certificate, key }: CertificateFiles): Promise<string> {
  const stamps = [certificate, key].map(file =>
    stat(file, { bigint: true }).then(
      ({ dev, ino, size, mtimeNs, ctimeNs }) => [dev, ino, size, mtimeNs, ctimeNs].join(),
      (error: NodeJS.ErrnoException) => error.code
    )
  )
  return (await Promise.all(stamps)).join(' ')
}
