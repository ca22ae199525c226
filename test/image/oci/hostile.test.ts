import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { localHelper } from '../../../lib/helper/local.js'
import { readReference, Skopeo } from '../../../lib/image/oci/skopeo.js'
import { requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { beginning } from '../imaging.js'
import { imageOf, sha, startHostile, tarEntry, tarOf } from './hostile.js'
import { login, writeLogins } from './registry.js'

const plain = imageOf(tarOf(tarEntry('hello', '0', 'world'), tarEntry('more', '0', 'x'.repeat(200_000))))
type Answering = (url: string, response: ServerResponse, request: IncomingMessage) => boolean

/** Imports an image of a registry; returns the refusal, after a look that nothing is left of it. */
async function refused(
  t: Test,
  image: { readonly manifest: object; readonly blobs: ReadonlyMap<string, Buffer> },
  answer?: Answering,
  ...overrides: readonly string[]
) {
  const registry = await startHostile(t, scratch(t), image, answer)
  const c = await beginning(t, undefined, ...overrides)
  const source = `docker://${registry.host}/site/compute:1`
  const { status, body, text } = await c.c.post('/config/osimage/new/_import', { source })
  t.not(status, 201, text)
  t.equal((await c.c.get('/config/osimage/new')).status, 404, 'there is no image')
  t.strictSame(readdirSync(c.images), ['compute'], 'there is no directory')
  c.clean('after a refusal')
  return { ...registry, ...c, status, message: String(body.message) }
}

// rules 9.16
t.test('a registry that lies about a digest', async t => {
  requireRoot()
  const lies: Answering = (url, response) => {
    const blob = plain.blobs.get(url.split('/').at(-1) ?? '')
    if (!url.includes('/blobs/') || !blob || blob.length < 300) return false
    const other = Buffer.from(blob)
    other[other.length - 20] = 255 - (other[other.length - 20] as number)
    response.writeHead(200, { 'Content-Length': other.length }).end(other)
    return true
  }
  const { message } = await refused(t, plain, lies)
  t.match(message, /OS image new: docker:.*digest.*it sent other bytes than it promised/i)
})

t.test('a tag that becomes another image between two questions', async t => {
  requireRoot()
  const other = imageOf(tarOf(tarEntry('other', '0', 'bytes')))
  let count = 0
  const moves: Answering = (url, response) => {
    if (!url.includes('/manifests/') || count++ === 0) return false
    const bytes = JSON.stringify(other.manifest)
    response.writeHead(200, { 'Content-Type': 'application/vnd.oci.image.manifest.v1+json' }).end(bytes)
    return true
  }
  t.match((await refused(t, plain, moves)).message, /digest/)
})

t.test('a registry that stops in the middle', async t => {
  requireRoot()
  const breaks: Answering = (url, response) => {
    if (!url.includes('/blobs/')) return false
    response.writeHead(200, { 'Content-Length': 100_000 }).write('x'.repeat(1000))
    setTimeout(() => response.destroy(), 50)
    return true
  }
  t.match((await refused(t, plain, breaks)).message, /unexpected EOF.*it stopped in the middle: try again/)
})

t.test('a registry that keeps the connection and sends nothing', async t => {
  const hangs: Answering = (url, response) => {
    if (!url.includes('/blobs/')) return false
    response.writeHead(200, { 'Content-Length': 100_000 }).write('x'.repeat(1000))
    return true
  }
  const directory = scratch(t)
  const { host } = await startHostile(t, directory, plain, hangs)
  const places = { images: '', files: '', state: '', sshKey: '', sshPort: 22, byRoot: true, units: [] }
  const limits = { registry_auth: '', max_unpacked: 2 ** 30, time_limit: 60_000 }
  const skopeo = new Skopeo(limits, readReference(`docker://${host}/a/b:1`, 'it'), localHelper(places), 2000)
  const job = { id: '', signal: new AbortController().signal, line() {}, progress() {}, result() {} }
  const found = await skopeo.describe(directory, job.signal)
  await t.rejects(skopeo.copy(directory, found, job), { message: /^nothing came for 2 s/ })
})

t.test('redirects', async t => {
  requireRoot()
  const elsewhere = await startHostile(t, scratch(t), plain)
  const sends: Answering = (url, response, request) => {
    if (request.headers.authorization === undefined) {
      response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="site"' }).end()
      return true
    }
    if (!url.includes('/blobs/')) return false
    response.writeHead(307, { Location: `https://localhost:${elsewhere.port}/evil/blobs/${sha('x')}` }).end()
    return true
  }
  const directory = scratch(t)
  const registry = await startHostile(t, directory, plain, sends)
  const c = await beginning(t, undefined, `image.registry_auth=${writeLogins(directory, registry.host)}`)
  // Both have certificates of their own.
  t.match(
    await c.c.post('/config/osimage/new/_import', { source: `docker://${registry.host}/site/compute:1` }),
    { status: 503, body: { message: /certificate|x509/ } }
  )
  c.clean('after a redirect to a stranger')
  for (const { authorization } of elsewhere.asked) t.equal(authorization, undefined)
  t.ok(registry.asked.some(({ authorization }) => authorization?.startsWith('Basic ')))
  t.notMatch(c.c.log.join('\n'), login.password)
})

t.test('too many layers, too many bytes, layers of another kind', async t => {
  requireRoot()
  const many = { ...plain.manifest, layers: Array(10_000).fill(plain.manifest.layers[0]) }
  const first = await refused(t, { ...plain, manifest: many })
  t.match(first.message, /it has 10000 layers, and 256 are the most: build it with fewer/)
  t.notOk(
    first.asked.some(({ url }) => url.includes('/blobs/')),
    'no layer was fetched'
  )
  const some = { ...plain.manifest, layers: Array(300).fill(plain.manifest.layers[0]) }
  t.match((await refused(t, { ...plain, manifest: some })).message, /it has 300 layers, and 256 are the most/)
  const large = { ...plain.manifest, layers: [{ ...plain.manifest.layers[0], size: 2 ** 40 }] }
  t.match(
    (await refused(t, { ...plain, manifest: large })).message,
    /more than \d+ bytes: \[image\] max_unpacked/
  )
  const [layer] = plain.manifest.layers
  const other = {
    ...plain.manifest,
    layers: [{ ...layer, mediaType: 'application/vnd.oci.image.layer.v1.tar+xz' }]
  }
  t.match((await refused(t, { ...plain, manifest: other })).message, /tar\+xz, and svcd takes tar with gzip/)
})

t.test('a layer that unpacks to more than the bound', async t => {
  requireRoot()
  const zeros = Array.from({ length: 40 }, (_, i) => tarEntry(`zeros-${i}`, '0', '\0'.repeat(4 << 20)))
  const { message } = await refused(t, imageOf(tarOf(...zeros)), undefined, 'image.max_unpacked=16m')
  t.match(message, /the image takes more than 16777216 bytes unpacked: \[image\] max_unpacked/)
})

t.test('paths and links that lead out of the tree', async t => {
  requireRoot()
  const outside = scratch(t)
  const evil = imageOf(
    tarOf(
      tarEntry('../../../escaped', '0', 'evil'),
      tarEntry('out', '2', '', outside),
      tarEntry('out/planted', '0', 'evil'),
      tarEntry('/absolute', '0', 'evil'),
      tarEntry('etc/shadow', '2', '', '/etc/shadow'),
      tarEntry('etc/os-release', '2', '', '/etc/os-release')
    ),
    tarOf(tarEntry('out/later', '0', 'evil'), tarEntry('etc/shadow', '0', 'root::'))
  )
  const before = readFileSync('/etc/shadow', 'utf8')
  const { host } = await startHostile(t, scratch(t), evil)
  const c = await beginning(t)
  const source = `docker://${host}/site/compute:1`
  const { status, text } = await c.c.post('/config/osimage/new/_import', { source })
  t.strictSame(readdirSync(outside), [], 'nothing was written outside')
  t.equal(readFileSync('/etc/shadow', 'utf8'), before)
  t.notOk(existsSync(join(c.images, 'escaped')) || existsSync(join(c.directory, 'escaped')))
  t.equal(status, 201, text)
  t.ok(lstatSync(join(c.images, 'new/escaped')).isFile(), 'it stays in the tree')
  t.equal(readlinkSync(join(c.images, 'new/out')), outside)
  t.equal((await c.image('new')).distribution, 'redhat', 'no file of this machine is read')
  c.clean('after an escape')
})

t.test('a cancel while the layers come', async t => {
  requireRoot()
  let begun = false
  const hangs: Answering = (url, response) => {
    if (!url.includes('/blobs/')) return false
    begun = true
    response.writeHead(200, { 'Content-Length': 100_000 }).write('x'.repeat(1000))
    return true
  }
  const { host } = await startHostile(t, scratch(t), plain, hangs)
  const { c, clean, ended } = await beginning(t)
  const source = `docker://${host}/site/compute:1`
  const asked = { headers: { prefer: 'respond-async' } }
  const { body } = await c.post('/config/osimage/new/_import', { source }, asked)
  await until(() => begun, 'the layers come')
  t.equal((await c.get(`/config/status/${body.request_id}/_cancel`)).status, 200)
  t.match(await ended('import'), { state: 'failed', message: /cancelled/ })
  clean('after a cancel')
})
