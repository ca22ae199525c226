import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { makeCertificate } from '../../support/certificate.js'
import { freePort } from '../../support/free-port.js'
import { output } from '../../support/programs.js'
import { until } from '../../support/until.js'

export const login = { name: 'compute', password: 'correct horse' }

/** Debian's docker-registry on loopback, with TLS and a login. */
export async function startRegistry(t: Test, directory: string) {
  const { key, certificate } = await makeCertificate(directory, 'localhost')
  const port = await freePort()
  const host = `127.0.0.1:${port}`
  const htpasswd = join(directory, 'htpasswd')
  writeFileSync(htpasswd, await output('htpasswd', ['-nbB', login.name, login.password]))
  const settings = {
    version: '0.1',
    log: { level: 'error' },
    storage: { filesystem: { rootdirectory: join(directory, 'blobs') } },
    http: { addr: host, tls: { certificate, key } },
    auth: { htpasswd: { realm: 'site', path: htpasswd } }
  }
  const file = join(directory, 'registry.json')
  writeFileSync(file, JSON.stringify(settings))
  const child = spawn('docker-registry', ['serve', file], { stdio: 'ignore' })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  await until(() => listens(port), 'the registry listens')
  trust(t, certificate)
  return { host, certificate, authfile: writeLogins(directory, host) }
}

/** Writes a file as `skopeo login` does. */
export function writeLogins(directory: string, host: string): string {
  const file = join(directory, 'logins.json')
  const auth = Buffer.from(`${login.name}:${login.password}`).toString('base64')
  writeFileSync(file, JSON.stringify({ auths: { [host]: { auth } } }), { mode: 0o600 })
  return file
}

/** Has this process's programs trust a certificate, as the system trusts its authorities. */
export function trust(t: Test, certificate: string): void {
  const before = process.env.SSL_CERT_FILE
  process.env.SSL_CERT_FILE = certificate
  t.teardown(() => {
    if (before === undefined) delete process.env.SSL_CERT_FILE
    else process.env.SSL_CERT_FILE = before
  })
}

const listens = (port: number) =>
  new Promise<boolean>(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('close', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })

/** Files of a container image: a text, null for a directory. */
export type Content = Readonly<Record<string, string>>

export const debian: Content = {
  'etc/os-release': 'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="12"\n',
  'etc/hostname': 'first\n'
}

/** The files with which svcd takes an image for one that boots. */
export const bootable: Content = {
  ...debian,
  'sbin/init': 'init',
  'usr/sbin/mkinitramfs': 'tool',
  'boot/vmlinuz-6.1.0': 'kernel',
  'lib/modules/6.1.0/modules.dep': ''
}

/** Builds an OCI layout by umoci; returns `<layout>:image`. */
export async function buildLayout(directory: string, name: string, ...layers: readonly Content[]) {
  const layout = join(directory, name)
  const image = `${layout}:image`
  await output('umoci', ['init', '--layout', layout])
  await output('umoci', ['new', '--image', image])
  for (const [i, files] of layers.entries()) {
    const tree = join(directory, `${name}-${i}`)
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(tree, path, '..'), { recursive: true })
      writeFileSync(join(tree, path), text)
    }
    await output('umoci', ['insert', '--image', image, tree, '/'])
  }
  await output('umoci', ['config', '--image', image, '--config.label', 'site=hall 4'])
  return image
}

export const pushLayout = (image: string, target: string, authfile: string) =>
  output('skopeo', ['copy', '--quiet', '--dest-authfile', authfile, `oci:${image}`, target])

export const digestIn = (layout: string): string =>
  JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8')).manifests[0].digest
