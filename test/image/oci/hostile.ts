import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Test } from 'tap'
import { makeCertificate } from '../../support/certificate.js'
import { trust } from './registry.js'

export const sha = (bytes: string | Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** A header of a tar entry, with the content behind it. */
export function tarEntry(
  name: string,
  type: string,
  text = '',
  link = '',
  size = text.length,
  mode = 0o644
): Buffer {
  const header = Buffer.alloc(512)
  const octal = (value: number, at: number, length: number) =>
    header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at)
  header.write(name, 0)
  octal(mode, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(size, 124, 12)
  octal(0, 136, 12)
  header.write('        ', 148)
  header.write(type, 156)
  header.write(link, 157)
  if (type === '3') {
    octal(1, 329, 8)
    octal(3, 337, 8)
  }
  header.write('ustar\u000000', 257)
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7
  )
  const body = Buffer.alloc(Math.ceil(text.length / 512) * 512)
  body.write(text)
  return Buffer.concat([header, body])
}

export const tarOf = (...entries: readonly Buffer[]) => Buffer.concat([...entries, Buffer.alloc(1024)])

/** An image of these layers, as a registry has it; `layers` are uncompressed tars. */
export function imageOf(...layers: readonly Buffer[]) {
  const packed = layers.map(layer => gzipSync(layer))
  const config = JSON.stringify({
    ...{ architecture: 'amd64', os: 'linux', config: {} },
    rootfs: { type: 'layers', diff_ids: layers.map(sha) }
  })
  const type = 'application/vnd.oci.image'
  const manifest = {
    schemaVersion: 2,
    mediaType: `${type}.manifest.v1+json`,
    config: { mediaType: `${type}.config.v1+json`, digest: sha(config), size: config.length },
    layers: packed.map(bytes => ({
      mediaType: `${type}.layer.v1.tar+gzip`,
      digest: sha(bytes),
      size: bytes.length
    }))
  }
  const blobs = new Map<string, Buffer>([[sha(config), Buffer.from(config)]])
  for (const bytes of packed) blobs.set(sha(bytes), bytes)
  return { manifest, blobs }
}

/** Writes an image as an OCI layout with the tag `image`. */
export function writeLayout(directory: string, { manifest, blobs }: ReturnType<typeof imageOf>): void {
  const text = JSON.stringify(manifest)
  const digest = sha(text)
  mkdirSync(join(directory, 'blobs/sha256'), { recursive: true })
  for (const [name, bytes] of [...blobs, [digest, Buffer.from(text)] as const])
    writeFileSync(join(directory, 'blobs/sha256', name.slice(7)), bytes)
  const annotations = { 'org.opencontainers.image.ref.name': 'image' }
  const manifests = [{ mediaType: manifest.mediaType, digest, size: text.length, annotations }]
  writeFileSync(join(directory, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }))
  writeFileSync(join(directory, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
}

export type Answer = (request: IncomingMessage, response: ServerResponse) => void

/**
 * A registry on loopback with one image under every tag. `blob` answers for the layers in its place, and
 * `asked` has the requests with their Authorization.
 */
export async function startHostile(
  t: Test,
  directory: string,
  image: { readonly manifest: object; readonly blobs: ReadonlyMap<string, Buffer> },
  answer: (url: string, response: ServerResponse, request: IncomingMessage) => boolean = () => false
) {
  const { key, certificate } = await makeCertificate(directory, 'localhost')
  const asked: { url: string; authorization: string | undefined }[] = []
  const manifest = Buffer.from(JSON.stringify(image.manifest))
  const server = createServer(
    { key: readFileSync(key), cert: readFileSync(certificate) },
    (request, response) => {
      const { url = '' } = request
      asked.push({ url, authorization: request.headers.authorization })
      if (answer(url, response, request)) return
      const blob = image.blobs.get(url.split('/').at(-1) ?? '')
      if (url === '/v2/') response.end('{}')
      else if (url.includes('/manifests/')) {
        const type = (image.manifest as { mediaType?: string }).mediaType ?? 'application/json'
        response
          .writeHead(200, { 'Content-Type': type, 'Docker-Content-Digest': sha(manifest) })
          .end(manifest)
      } else if (blob) response.writeHead(200, { 'Content-Length': blob.length }).end(blob)
      else response.writeHead(404).end('{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}')
    }
  )
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  trust(t, certificate)
  const { port } = server.address() as { port: number }
  return { host: `127.0.0.1:${port}`, port, asked, path: (name: string) => join(directory, name) }
}
