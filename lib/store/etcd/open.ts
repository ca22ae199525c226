import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readPassword, readRegularFile, readSecret } from '../../disk/file.js'
import { type EtcdctlSettings, etcdctlFor } from './etcdctl.js'
import { EtcdMedium, type EtcdOptions } from './medium.js'

/** The settings of etcd in the ini: paths of files, '' if unset. */
interface EtcdSettings extends Required<EtcdctlSettings> {
  readonly password_file: string
  readonly prefix: string
  /** Milliseconds. */
  readonly ttl: number
}

/** Unusable files that the ini names, each with its key of the ini and what to do. */
export class EtcdFilesError extends Error {
  constructor(readonly reasons: readonly string[]) {
    super(reasons.join('; '))
  }
}

/** Creates the medium that the ini describes, without a connection yet. Throws EtcdFilesError. */
export async function openEtcd(
  settings: EtcdSettings,
  { log, url }: Pick<EtcdOptions, 'log' | 'url'> = {}
): Promise<EtcdMedium> {
  const { endpoints, prefix, ttl, user } = settings
  const reasons: string[] = []
  const read = async <T>(key: keyof EtcdSettings, use: (file: string) => Promise<T>) => {
    const file = settings[key] as string
    try {
      return file === '' ? undefined : await use(file)
    } catch (error) {
      reasons.push(`[store] ${key}: ${explained(file, error as NodeJS.ErrnoException)}`)
      return undefined
    }
  }
  const ca = await read('ca', certificateIn)
  const cert = await read('cert', certificateIn)
  const key = await read('key', async file => {
    const bytes = await readSecret(file)
    const own = parsed(file, 'private key without a passphrase', () => createPrivateKey(bytes))
    if (cert && !new X509Certificate(cert).checkPrivateKey(own))
      throw new Error(`${file} is not the key of ${settings.cert}: put both files of one certificate there`)
    return bytes
  })
  const password = await read('password_file', readPassword)
  if (reasons.length > 0) throw new EtcdFilesError(reasons)
  return new EtcdMedium({
    endpoints,
    etcdctl: etcdctlFor(settings),
    prefix,
    ttlSeconds: ttl / 1000,
    tls: { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) },
    ...(user === '' || password === undefined ? {} : { login: { user, password } }),
    ...(log ? { log } : {}),
    ...(url === undefined ? {} : { url })
  })
}

/** The command by which an admin removes all that svcd has in the etcd of the ini. */
export const removalCommand = (settings: EtcdSettings): string =>
  etcdctlFor(settings)(`del --prefix ${settings.prefix}`)

async function certificateIn(file: string): Promise<Buffer> {
  const bytes = await readRegularFile(file)
  parsed(file, 'certificate', () => new X509Certificate(bytes))
  return bytes
}

function parsed<T>(file: string, what: string, parse: () => T): T {
  try {
    return parse()
  } catch {
    throw new Error(`${file} holds no ${what} in PEM form: put the whole file there`)
  }
}

function explained(file: string, { code, message }: NodeJS.ErrnoException): string {
  if (code === 'ENOENT' || code === 'ENOTDIR') return `there is no file ${file}; put it there`
  if (code === 'EACCES' || code === 'EPERM')
    return (
      `${file} may not be read by the user of svcd (${code}); ` +
      `type: chgrp svcd ${file} && chmod 0640 ${file}`
    )
  return message.includes(file) ? message : `${file}: ${message}`
}
