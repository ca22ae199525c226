import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import mime from 'mime'
import { notFound } from '../base/errors.js'
import type { Answer } from '../http/route.js'
import { type ApiRequest, type ApiRoute, param } from './context.js'
import { takesGzip } from './listing.js'
import { get } from './row.js'
import { bytes } from './schema.js'

/** The page's files, in a checkout and in an installation. */
const directory = fileURLToPath(new URL('../../page', import.meta.url))

/** Allows svcd's own scripts and styles only, no other host, no frame, no HTML from texts (rules 6.12). */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'"
].join('; ')

const headers = {
  'Content-Security-Policy': policy,
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': 'camera=(), microphone=(), geolocation=()',
  // An upgrade shows the new page at once.
  'Cache-Control': 'no-cache',
  Vary: 'Accept-Encoding'
}

const zip = promisify(gzip)

/** The status page at `/` and its files below `/page`, from memory, for everybody (rules 6.12). */
export function pageRoutes(): ApiRoute[] {
  let paths: ReadonlyMap<string, string> | undefined
  const files = new Map<string, ReturnType<typeof readPageFile>>()
  const answer = async (name: string, request: ApiRequest) => {
    paths ??= findFiles()
    const path = paths.get(name)
    if (path === undefined) throw notFound(`there is no file ${name} of the status page`, 'no-file')
    const reading = files.get(name) ?? readPageFile(path)
    files.set(name, reading)
    reading.catch(() => files.delete(name))
    const { zipped, plain } = await reading
    return takesGzip(request.headers['accept-encoding']) ? zipped : plain
  }
  return [
    get('/', 'anyone', {
      summary: 'The status page',
      output: bytes,
      handler: request => answer('index.html', request)
    }),
    get('/page/{pagefile}', 'anyone', {
      summary: 'A file of the status page',
      output: bytes,
      handler: request => answer(param(request, 'pagefile'), request)
    })
  ]
}

/** The terminal of consoles. */
const terminalFiles = ['@xterm/xterm/lib/xterm.mjs', '@xterm/xterm/css/xterm.css']

/** Returns the path of each file by its name. Throws the error of the operating system. */
function findFiles(): Map<string, string> {
  const { resolve } = createRequire(import.meta.url)
  const own = readdirSync(directory).map(name => [name, join(directory, name)] as const)
  return new Map([...own, ...terminalFiles.map(path => [basename(path), resolve(path)] as const)])
}

/** Reads a file for good; the terminal takes a while to compress. Rejects with the system's error. */
async function readPageFile(path: string): Promise<Readonly<Record<'plain' | 'zipped', Answer>>> {
  const content = await readFile(path)
  const media = mime.getType(path) ?? 'application/octet-stream'
  const type = media.startsWith('text/') ? `${media}; charset=utf-8` : media
  const digest = createHash('sha256').update(content).digest('hex').slice(0, 32)
  const zippedHeaders = { ...headers, ETag: `"${digest}-gzip"`, 'Content-Encoding': 'gzip' }
  return {
    plain: { status: 200, type, bytes: content, headers: { ...headers, ETag: `"${digest}"` } },
    zipped: { status: 200, type, bytes: await zip(content, { level: 9 }), headers: zippedHeaders }
  }
}
