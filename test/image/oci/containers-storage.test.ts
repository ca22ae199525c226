import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { runCommand } from '../../../lib/helper/local.js'
import { output, requirePrograms, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { beginning } from '../imaging.js'
import { bootable, buildLayout, debian } from './registry.js'
import { startStorage } from './storage.js'

requirePrograms('buildah')

const settings = ({ path }: { path: string }) => `image.containers_storage=${path}`

/** All that is in a directory, with owners, modes, sizes and times of change. */
const listing = (directory: string) => output('find', [directory, '-printf', '%p %U %m %s %T@ %C@\n'])

// rules 9.16
t.test('import and update', async t => {
  requireRoot()
  const storage = startStorage(scratch(t))
  const { c, images, directory, image, clean, ended } = await beginning(t, undefined, settings(storage))
  const digest = await storage.build('localhost/compute:1', bootable)
  const before = await listing(storage.path)
  const source = 'containers-storage:localhost/compute:1'
  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'first\n')
  const shown = await image('new')
  t.match(shown._source, { reference: source, digest, labels: { site: 'hall 4' }, layers: { length: 1 } })
  t.equal((await ended('import')).results.digest, digest, 'the digest that podman shows')
  t.equal((await c.post('/config/osimage/new/_update', {})).status, 204)
  t.match((await ended('update')).lines.join('\n'), /is still sha256:.*: nothing was fetched/)
  t.equal((await image('new'))._source.time, shown._source.time)
  t.equal(await listing(storage.path), before, 'nothing is written into the storage')

  const second = await storage.build('localhost/compute:1', { 'etc/hostname': 'second\n' }, source)
  t.not(second, digest)
  const updated = await c.post('/config/osimage/new/_update', {})
  t.equal(updated.status, 204, updated.text)
  t.match((await image('new'))._source, { digest: second, layers: { length: 2 } })
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'second\n')
  t.match(
    await c.post('/config/osimage/new/_update', {
      source: `containers-storage:localhost/compute@${second}`
    }),
    { status: 204 }
  )
  t.match(await image('new'), { _source: { reference: `containers-storage:localhost/compute@${second}` } })
  t.strictSame(readdirSync(join(directory, '.svcd-layers')), [], 'its layers are kept in the storage alone')
  clean('after an update')
})
