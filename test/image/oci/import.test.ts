import { lstatSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { beginning } from '../imaging.js'
import { bootable, buildLayout, debian, digestIn, login, pushLayout, startRegistry } from './registry.js'

// rules 9.16
t.test('from a registry with TLS and a login', async t => {
  requireRoot()
  const directory = scratch(t)
  const { host, authfile } = await startRegistry(t, directory)
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

  const texts = [c.log.join('\n'), JSON.stringify(await c.get('/monitor/request'))].join('\n')
  t.notMatch(texts, login.password, 'no password is told')
  t.match(await c.post('/config/osimage/new/_import', { source }), { status: 400 })
  await c.post('/config/osimage/new/_delete', {})
  t.equal((await c.get('/config/osimage/new')).status, 404)
})
