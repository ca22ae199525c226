import { randomUUID, X509Certificate } from 'node:crypto'
import { chmod, chown, link, mkdtemp, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { exists, isFile, replaceDurably, syncDirectory, syncFile } from '../disk/file.js'
import { run } from '../program/program.js'

const LIMIT_MS = 60_000
const DAYS = 3650

const ask = (program: string, args: readonly string[]) => run(program, args, { timeLimitMs: LIMIT_MS })

const pathsIn = (state: string) => ({
  key: join(state, 'secureboot.key'),
  certificate: join(state, 'secureboot.crt')
})

/** Throws Error naming the command that makes the key, where the state directory has none. */
async function siteKey(state: string) {
  const paths = pathsIn(state)
  if (!(await isFile(paths.key)) || !(await isFile(paths.certificate)))
    throw new Error(`${state} has no key of the site for Secure Boot: type svcd keys secureboot make`)
  return paths
}

/**
 * Makes the key of a site and its certificate (RSA-2048) in the state directory (rules 15.14), for the owner
 * of that directory. Never replaces one: machines that enrolled it would boot no more. Throws Error.
 */
export async function makeSiteKey(state: string, site: string): Promise<void> {
  const paths = pathsIn(state)
  for (const path of Object.values(paths))
    if (await exists(path))
      throw new Error(`${path} is there already, and machines may have enrolled it: it is not replaced`)
  const work = await mkdtemp(join(state, '.svcd-keys-'))
  try {
    const [key, certificate] = [join(work, 'key'), join(work, 'crt')]
    const subject = ['-subj', `/CN=Secure Boot of ${site.replace(/[^A-Za-z0-9.-]/g, '-')}/`]
    const uses = ['basicConstraints=critical,CA:FALSE', 'extendedKeyUsage=codeSigning']
    const kind = ['-newkey', 'rsa:2048', '-sha256', '-nodes', '-days', String(DAYS)]
    const extensions = uses.flatMap(use => ['-addext', use])
    const out = ['-keyout', key, '-out', certificate]
    await ask('openssl', ['req', '-x509', ...kind, ...subject, ...extensions, ...out])
    const { uid, gid } = await stat(state)
    for (const [from, to] of [
      [key, paths.key],
      [certificate, paths.certificate]
    ] as const) {
      await chmod(from, 0o600)
      await chown(from, uid, gid)
      await syncFile(from, 0o600)
      // Unlike a rename, this replaces nothing.
      await link(from, to)
    }
    await syncDirectory(state)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

/** Describes the certificate of the site for a person. Throws Error as `siteKey`. */
export async function describeSiteKey(state: string): Promise<string> {
  const { certificate } = await siteKey(state)
  const { subject, fingerprint256, validTo } = new X509Certificate(await readFile(certificate))
  return `${certificate}: ${subject.replaceAll('\n', ', ')}\nvalid to ${validTo}\nSHA-256 ${fingerprint256}\n`
}

/** The variables of UEFI that `enrol` files are for, and the names of those files. */
const variables = ['db', 'KEK', 'PK'] as const

/**
 * Writes what machines enrol into an existing directory: the certificate as DER and PEM, and for each of db,
 * KEK and PK a signature list and an update that the site's key signed, for a firmware in its setup mode.
 * Returns the names. Throws Error.
 */
export async function exportSiteKey(state: string, directory: string): Promise<string[]> {
  const { key, certificate } = await siteKey(state)
  const parsed = new X509Certificate(await readFile(certificate))
  const at = (name: string) => join(directory, name)
  await replaceDurably(at('site.cer'), parsed.raw, 0o644)
  await replaceDurably(at('site.crt'), parsed.toString(), 0o644)
  const list = at('site.esl')
  const owner = ['-g', randomUUID()]
  await ask('cert-to-efi-sig-list', [...owner, certificate, list])
  const signer = ['-k', key, '-c', certificate]
  for (const variable of variables)
    await ask('sign-efi-sig-list', [...owner, ...signer, variable, list, at(`${variable}.auth`)])
  return ['site.cer', 'site.crt', 'site.esl', ...variables.map(variable => `${variable}.auth`)]
}

/**
 * Signs a boot loader, a kernel or a UKI with the key of the site; earlier signatures stay. `output` is
 * replaced as a whole, with the mode of `file`. Throws Error naming what is missing.
 */
export async function signWithSiteKey(state: string, file: string, output: string, signal?: AbortSignal) {
  const { key, certificate } = await siteKey(state)
  const { mode } = await stat(file)
  const part = `${output}.part`
  try {
    const words = ['--key', key, '--cert', certificate, '--output', part, file]
    await run('sbsign', words, { timeLimitMs: LIMIT_MS, ...(signal && { signal }) })
    await syncFile(part, mode & 0o7777)
    await rename(part, output)
  } finally {
    await rm(part, { force: true })
  }
}
