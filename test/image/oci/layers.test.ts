import { randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { ImageContext } from '../../../lib/image/context.js'
import { lendLayers } from '../../../lib/image/oci/import.js'
import { output, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { beginning } from '../imaging.js'
import { imageOf, sha, startHostile, tarEntry, tarOf } from './hostile.js'

const base = tarOf(tarEntry('base', '0', 'x'.repeat(100_000)))
const [first, second, other] = ['one', 'two', 'three'].map(text =>
  imageOf(base, tarOf(tarEntry('etc/hostname', '0', text)))
) as [ReturnType<typeof imageOf>, ReturnType<typeof imageOf>, ReturnType<typeof imageOf>]
const layerOf = ({ manifest }: typeof first, i: number) => String(manifest.layers[i]?.digest)

// rules 9.16
t.test('an update fetches changed layers alone', async t => {
  requireRoot()
  let now = first
  const { host, asked } = await startHostile(t, scratch(t), first, (url, response) => {
    const blob = now.blobs.get(url.split('/').at(-1) ?? '')
    if (url.includes('/manifests/')) {
      const bytes = Buffer.from(JSON.stringify(now.manifest))
      const headers = { 'Content-Type': now.manifest.mediaType, 'Docker-Content-Digest': sha(bytes) }
      response.writeHead(200, headers).end(bytes)
    } else if (blob) response.writeHead(200, { 'Content-Length': blob.length }).end(blob)
    else return false
    return true
  })
  const { c, images, directory, image, ended, clean } = await beginning(t)
  const fetched = () => asked.splice(0).flatMap(({ url }) => /sha256:[0-9a-f]{64}$/.exec(url)?.[0] ?? [])
  const source = `docker://${host}/site/compute:1`
  const kept = join(directory, '.svcd-layers')
  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  t.ok(fetched().includes(layerOf(first, 0)))
  t.equal(statSync(kept).mode & 0o777, 0o700, 'nobody else reads what is in an image')
  clean('after an import')

  now = second
  t.equal((await c.post('/config/osimage/new/_update', {})).status, 204)
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'two')
  t.equal(readFileSync(join(images, 'new/base')).length, 100_000)
  const again = fetched()
  t.ok(again.includes(layerOf(second, 1)), 'the changed layer comes')
  t.notOk(again.includes(layerOf(second, 0)), 'no request for the other one')
  t.match((await ended('update')).lines.join('\n'), /1 of 2 layers are here already/)
  const names = () => readdirSync(kept).sort()
  const hex = (digests: readonly string[]) => digests.map(digest => digest.slice(7)).sort()
  t.strictSame(names(), hex((await image('new'))._source.layers), 'those that no image has are gone')

  // A kept layer that was damaged is fetched.
  writeFileSync(join(kept, layerOf(second, 0).slice(7)), 'damaged')
  now = other
  t.equal((await c.post('/config/osimage/new/_update', {})).status, 204)
  t.ok(fetched().includes(layerOf(second, 0)))
  t.equal(sha(readFileSync(join(kept, layerOf(second, 0).slice(7)))), layerOf(second, 0), 'kept anew')
  t.equal(readFileSync(join(images, 'new/base')).length, 100_000)

  now = second
  fetched()
  await c.post('/config/osimage/more/_import', { source })
  t.ok(fetched().includes(layerOf(second, 0)), 'what another image has is not lent')
  const left = hex((await image('more'))._source.layers)
  t.equal(names().length, 3)
  await c.post('/config/osimage/new/_delete', {})
  await until(() => names().length === left.length, 'those of a deleted image go too')
  t.strictSame(names(), left)
})

t.test('a kept layer that is removed meanwhile', async t => {
  const directory = scratch(t)
  const bytes = Buffer.alloc(64 << 20)
  const digest = sha(bytes)
  const file = join(directory, '.svcd-layers', digest.slice(7))
  mkdirSync(join(file, '..'))
  const context = { config: { paths: { files: directory } } } as unknown as ImageContext
  const job = { id: '', signal: new AbortController().signal, line() {}, progress() {}, result() {} }
  const lend = (name: string) =>
    lendLayers(context, join(directory, name), [digest, sha('none')], [digest], job)
  writeFileSync(file, bytes)
  t.equal(await lend('one'), bytes.length)
  setTimeout(() => rmSync(file), 20)
  await t.resolves(lend('two'))
})

t.test('an update needs no room for layers that are here', async t => {
  requireRoot()
  const noise = tarOf(tarEntry('noise', '0', randomBytes(4 << 20).toString('base64')))
  let now = imageOf(noise)
  const { host } = await startHostile(t, scratch(t), now, (url, response) => {
    const blob = now.blobs.get(url.split('/').at(-1) ?? '')
    const bytes = url.includes('/manifests/') ? Buffer.from(JSON.stringify(now.manifest)) : blob
    if (bytes) response.writeHead(200, { 'Content-Type': now.manifest.mediaType }).end(bytes)
    return bytes !== undefined
  })
  const { c, directory } = await beginning(t)
  await output('mount', ['-t', 'tmpfs', '-o', 'size=262m', 'tmpfs', directory])
  t.teardown(() => output('umount', ['-l', directory]))
  const source = `docker://${host}/site/compute:1`
  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  now = imageOf(noise, tarOf(tarEntry('more', '0', 'more')))
  const updated = await c.post('/config/osimage/new/_update', {})
  t.equal(updated.status, 204, updated.text)
  const other = imageOf(tarOf(tarEntry('noise', '0', randomBytes(4 << 20).toString('base64'))))
  now = other
  t.match(await c.post('/config/osimage/new/_update', {}), {
    status: 503,
    body: { message: /\[paths\] files has no room for more than \d+ bytes of an image/ }
  })
})

t.test('the kept layers have a bound', async t => {
  requireRoot()
  const noise = () => randomBytes(4 << 20).toString('base64')
  const images = ['a', 'b', 'c'].map(name => imageOf(tarOf(tarEntry(name, '0', noise()))))
  let now = images[0] as (typeof images)[number]
  const { host } = await startHostile(t, scratch(t), now, (url, response) => {
    const blob = now.blobs.get(url.split('/').at(-1) ?? '')
    const bytes = url.includes('/manifests/') ? Buffer.from(JSON.stringify(now.manifest)) : blob
    if (bytes) response.writeHead(200, { 'Content-Type': now.manifest.mediaType }).end(bytes)
    return bytes !== undefined
  })
  const { c, directory, images: trees } = await beginning(t, undefined, 'image.max_unpacked=10m')
  // The bound looks at what the file system loses, and other tests write to theirs.
  await output('mount', ['-t', 'tmpfs', '-o', 'size=400m', 'tmpfs', trees])
  t.teardown(() => output('umount', ['-l', trees]))
  const source = `docker://${host}/site/compute:1`
  for (const [i, image] of images.entries()) {
    now = image
    const imported = await c.post(`/config/osimage/new${i}/_import`, { source })
    t.equal(imported.status, 201, imported.text)
  }
  t.strictSame(
    readdirSync(join(directory, '.svcd-layers')).sort(),
    images
      .slice(1)
      .map(image => layerOf(image, 0).slice(7))
      .sort(),
    'the newest two, of 4 MiB each'
  )
})
