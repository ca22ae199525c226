import { chmodSync, existsSync, lstatSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { output, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { beginning } from '../imaging.js'
import { bootable, buildLayout, debian, digestIn, login, pushLayout, startRegistry } from './registry.js'

const asynchronous = { headers: { prefer: 'respond-async' } }

// rules 9.16
t.test('from a registry with TLS and a login', async t => {
  requireRoot()
  const directory = scratch(t)
  const { host, certificate, authfile } = await startRegistry(t, directory)
  const { c, images, image, clean, ended } = await beginning(t, undefined, `image.registry_auth=${authfile}`)
  const source = `docker://${host}/site/compute:2026.11`
  const first = await buildLayout(directory, 'first', debian, { 'etc/hostname': 'second\n' })
  await pushLayout(first, source, authfile)

  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'second\n', 'the upper layer is on top')
  const digest = digestIn(join(directory, 'first'))
  const shown = await image('new')
  t.match(shown, { distribution: 'debian', osrelease: '12', path: join(images, 'new'), imagefile: null })
  t.match(shown._source, { reference: source, digest, labels: { site: 'hall 4' } })
  t.equal(shown._source.layers.length, 2)
  t.equal(lstatSync(join(images, 'new')).mode & 0o7777, 0o755)
  const record = await ended('import')
  t.match(
    record.results.lacking,
    'RUN apt-get update && apt-get install -y --no-install-recommends ' +
      'linux-image-amd64 systemd-sysv initramfs-tools'
  )
  t.match(record.lines.join('\n'), /cannot boot yet: it lacks a kernel .* and an init .* and dracut/)
  clean('after an import')

  const same = await c.post('/config/osimage/new/_update', {})
  t.equal(same.status, 204, same.text)
  t.match((await ended('update')).lines.join('\n'), /is still sha256:.*: nothing was fetched/)
  t.equal((await image('new'))._source.time, shown._source.time)

  const second = await buildLayout(directory, 'second', bootable)
  await pushLayout(second, source, authfile)
  t.equal((await c.post('/config/osimage/new/_update', {})).status, 204)
  t.equal((await image('new'))._source.digest, digestIn(join(directory, 'second')))
  t.equal((await ended('update')).results.lacking, undefined)
  t.equal(
    readFileSync(join(images, 'new/etc/hostname'), 'utf8'),
    'first\n',
    'nothing of the old tree is left'
  )
  clean('after an update')

  // An image for several platforms: that of this machine.
  const parts = ['first', 'second'].map(
    name => JSON.parse(readFileSync(join(directory, name, 'index.json'), 'utf8')).manifests[0]
  )
  const here = process.arch === 'arm64' ? 'arm64' : 'amd64'
  const manifests = [here, 's390x'].map((architecture, i) => {
    const { mediaType, digest, size } = parts[i]
    return { mediaType, digest, size, platform: { os: 'linux', architecture } }
  })
  const kind = 'application/vnd.oci.image.index.v1+json'
  const list = JSON.stringify({ schemaVersion: 2, mediaType: kind, manifests })
  const url = `https://${host}/v2/site/compute/manifests/several`
  const words = [
    '-sSf',
    '--cacert',
    certificate,
    '-u',
    `${login.name}:${login.password}`,
    '-H',
    `content-type: ${kind}`
  ]
  await output('curl', [...words, '-X', 'PUT', '--data-binary', list, url])
  const several = `docker://${host}/site/compute:several`
  t.match(await c.post('/config/osimage/new/_update', { source: several }), { status: 204 })
  t.match((await image('new'))._source, { reference: several, digest })

  chmodSync(authfile, 0o644)
  t.match(await c.post('/config/osimage/new/_update', {}), {
    status: 503,
    body: { message: /\[image\] registry_auth: .*0600/ }
  })

  const texts = [c.log.join('\n'), JSON.stringify(await c.get('/monitor/request'))].join('\n')
  t.notMatch(texts, login.password, 'no password is told')
  t.match(await c.post('/config/osimage/new/_import', { source }), { status: 400 })
  await c.post('/config/osimage/new/_delete', {})
  t.equal((await c.get('/config/osimage/new')).status, 404)
})

t.test('from archives; what ends the source; a cancel', async t => {
  requireRoot()
  const directory = scratch(t)
  const { c, images, image, clean, hold } = await beginning(t)
  const built = await buildLayout(directory, 'first', bootable)
  for (const kind of ['oci', 'docker']) {
    const source = `${kind}-archive:${join(directory, `${kind}.tar`)}`
    await output('skopeo', ['copy', '--quiet', `oci:${built}`, kind === 'oci' ? source : `${source}:a:1`])
    const { status, text } = await c.post(`/config/osimage/${kind}/_import`, { source })
    t.equal(status, 201, text)
    t.equal(readFileSync(join(images, kind, 'etc/hostname'), 'utf8'), 'first\n')
    t.match(await image(kind), { distribution: 'debian', _source: { reference: source } })
    t.equal((await c.post(`/config/osimage/${kind}/_update`, {})).status, 204)
  }
  t.equal((await image('oci'))._source.digest, digestIn(join(directory, 'first')))

  await c.post('/config/osimage/oci', { comment: 'kept' })
  t.ok((await image('oci'))._source, 'another field leaves it')
  await c.post('/config/osimage/oci', { newosimage: 'renamed' })
  t.ok((await image('renamed'))._source, 'so does a rename')
  await c.post('/config/osimage/renamed', { path: join(images, 'elsewhere') })
  t.equal((await image('renamed'))._source, null, 'another path ends it')

  await c.restart()
  t.match(await image('docker'), { _source: { labels: { site: 'hall 4' } } }, 'it is stored')
  const gate = await hold('osimage late')
  const source = `oci-archive:${join(directory, 'oci.tar')}`
  const { body } = await c.post('/config/osimage/late/_import', { source }, asynchronous)
  t.equal((await c.get(`/config/status/${body.request_id}/_cancel`)).status, 200)
  gate.end()
  await until(async () => {
    const { monitor } = (await c.get(`/monitor/request/${body.request_id}`)).body
    return monitor.request[body.request_id].state === 'failed'
  }, 'the end of the import')
  t.equal((await c.get('/config/osimage/late')).status, 404)
  clean('after a cancel')

  const done = await c.post('/config/osimage/compute/_update', { source })
  t.equal(done.status, 204, done.text)
  t.notOk(existsSync(join(images, 'compute/small')), 'an image that was not imported is replaced')
  t.match(await image('compute'), { distribution: 'debian', _source: { reference: source } })
})
