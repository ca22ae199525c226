import { X509Certificate } from 'node:crypto'
import { readRegularFile } from '../disk/file.js'

const pem = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Reads the authorities of `[trust] ek_ca`; none for ''. Throws Error for a file without a sound one. */
export async function readAuthorities(file: string): Promise<X509Certificate[]> {
  if (file === '') return []
  try {
    const found = (String(await readRegularFile(file)).match(pem) ?? []).map(one => new X509Certificate(one))
    if (found.length === 0) throw new Error('it holds no certificate in PEM form')
    return found
  } catch (error) {
    throw Object.assign(new Error(`${file} holds no authorities: ${(error as Error).message}`), {
      key: '[trust] ek_ca'
    })
  }
}
