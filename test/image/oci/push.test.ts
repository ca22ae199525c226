import { execFileSync } from 'node:child_process'
import { linkSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { output, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { beginning } from '../imaging.js'
import { startHostile } from './hostile.js'
import { login, startRegistry, writeLogins } from './registry.js'

const asynchronous = { headers: { prefer: 'respond-async' } }

/** All that a tree is: types, modes, owners, links, sizes, times and devices, and the checksums of files. */
const listing = (tree: string) =>
  execFileSync(
    'sh',
    [
      '-c',
      "find . -mindepth 1 -printf '%p %y %m %U:%G %n %s %T@ %l\\n' | sed -E 's/(.* d .*) [0-9]+ ([0-9]+ [0-9.]+ )$/\\1/' | " +
        "sort; find . -type f -print0 | sort -z | xargs -0 sha256sum; getfattr -dhm- -R . | grep -v '^$'; " +
        'find . -type c -print0 | xargs -0r stat -c "%n %t:%T"'
    ],
    { cwd: tree, encoding: 'utf8' }
  )

// rules 9.17
for (const compressor of ['zstd', 'pigz', 'none'])
  t.test(`a pack by ${compressor} to a registry with TLS and a login, and back`, async t => {
    requireRoot()
    const directory = scratch(t)
    const { host, authfile } = await startRegistry(t, directory)
    const settings = [`image.registry_auth=${authfile}`, `image.compressor=${compressor}`]
    const { c, images, tree, image, pack, clean, ended } = await beginning(t, undefined, ...settings)
    const target = `docker://${host}/site/compute:1`
    const push = (body: object = { target }) => c.post('/config/osimage/compute/_push', body)
    t.match(await push(), { status: 404, body: { message: /is not packed: svcctl osimage pack compute/ } })

    const bin = join(tree, 'usr/bin')
    linkSync(join(bin, 'true'), join(bin, 'also'))
    await output('chown', ['12:34', join(bin, 'true')])
    await output('chmod', ['4755', join(bin, 'true')])
    await output('setfattr', [
      '-n',
      'security.capability',
      '-v',
      '0sAQAAAgAgAAAAAAAAAAAAAAAAAAA=',
      join(tree, 'sbin/init')
    ])
    await output('mknod', [join(tree, 'dev/null'), 'c', '1', '3'])
    await output('truncate', ['-s', '3M', join(tree, 'var-sparse')])
    writeFileSync(join(tree, 'ünïcode name'), 'x')
    utimesSync(join(tree, 'etc/hostname'), 1_000_000, 1_000_000)
    t.equal((await pack()).status, 204)
    const pushed = await push()
    t.equal(pushed.status, 204, pushed.text)
    const { results, lines } = await ended('upload')
    const { imagefile, kernelversion } = await image()
    t.match(results, { pack: imagefile, digest: /^sha256:[0-9a-f]{64}$/ })
    t.match(lines.at(-1), `${imagefile} is docker://${host}/site/compute@${results.digest}`)
    clean('after a push')

    const imported = await c.post('/config/osimage/back/_import', { source: target })
    t.equal(imported.status, 201, imported.text)
    t.equal(listing(join(images, 'back')), listing(tree), 'the same tree')
    t.match((await image('back'))._source, {
      digest: results.digest,
      labels: { 'svcd.osimage': 'compute', 'svcd.pack': imagefile, 'svcd.kernelversion': kernelversion }
    })
    t.match(await push({ target, tag: 'none' }), { status: 404, body: { message: /has no tag none/ } })
    await c.post('/config/osimage/compute/tag', { tag: 'gold' })
    writeFileSync(join(tree, 'new'), 'new')
    t.match(await push(), {
      status: 404,
      body: {
        message:
          `OS image compute: directory ${tree} was replaced, or its entries or mode changed, since it was ` +
          'packed: svcctl osimage pack compute'
      }
    })
    t.equal((await push({ target: `docker://${host}/site/gold:1`, tag: 'gold' })).status, 204)
    t.equal((await ended('upload')).results.digest, results.digest, 'the same pack is the same image')
    t.notMatch(c.log.join('\n'), login.password)
  })

// rules 9.17
t.test('an image with a source is changed by an update alone; a pack that takes no hard link', async t => {
  requireRoot()
  const files = scratch(t)
  const { host, authfile } = await startRegistry(t, files)
  const { c, images, directory, tree, image, pack, clean } = await beginning(
    t,
    undefined,
    `image.registry_auth=${authfile}`
  )
  const push = (name: string, tag: string) =>
    c.post(`/config/osimage/${name}/_push`, { target: `docker://${host}/site/${name}:${tag}` })
  t.equal((await pack()).status, 204)
  // As of another user's file.
  const file = join(directory, (await image()).imagefile)
  t.teardown(() => execFileSync('chattr', ['-i', file]))
  await output('chattr', ['+i', file])
  const linked = await push('compute', '1')
  t.equal(linked.status, 204, linked.text)
  clean('after a push by a symbolic link')
  await output('chattr', ['-i', file])
  t.ok(readFileSync(file).length > 0, 'the pack stays')
  writeFileSync(join(tree, 'new'), 'new')
  t.equal((await pack()).status, 204)
  t.equal((await push('compute', '2')).status, 204)

  const source = `docker://${host}/site/compute:1`
  t.equal((await c.post('/config/osimage/back/_import', { source })).status, 201)
  t.equal((await pack('back')).status, 204)
  await output('chmod', ['0700', join(images, 'back')])
  const pushed = await push('back', '1')
  t.equal(pushed.status, 204, pushed.text)
  const update = { source: source.replace(/1$/, '2') }
  t.equal((await c.post('/config/osimage/back/_update', update)).status, 204)
  // Without the directory too.
  rmSync(join(images, 'back'), { recursive: true })
  t.match(await push('back', '2'), {
    status: 404,
    body: { message: 'OS image back was imported or updated since it was packed: svcctl osimage pack back' }
  })
})

t.test('a wrong password, and logins that others may read', async t => {
  requireRoot()
  const directory = scratch(t)
  const { host } = await startRegistry(t, directory)
  const file = writeLogins(directory, host)
  const text = readFileSync(file, 'utf8')
  const wrong = Buffer.from(`${login.name}:wrong`).toString('base64')
  writeFileSync(file, text.replace(/"auth":"[^"]+"/, `"auth":"${wrong}"`))
  const { c, pack, clean } = await beginning(t, undefined, `image.registry_auth=${file}`)
  t.equal((await pack()).status, 204)
  const target = `docker://${host}/site/compute:1`
  const refused = await c.post('/config/osimage/compute/_push', { target })
  t.match(refused, { status: 503, body: { message: /unauthorized.*give svcd a login: skopeo login/ } })
  await output('chmod', ['0644', file])
  t.match(await c.post('/config/osimage/compute/_push', { target }), {
    status: 503,
    body: { message: /\[image\] registry_auth: .*0600/ }
  })
  clean('after refusals')
  for (const bad of [
    'docker://a.b/x',
    'docker://a.b/x@sha256:1',
    'docker://me:pw@a.b/x:1',
    'oci:/x:1',
    'dir:/x'
  ])
    t.match(await c.post('/config/osimage/compute/_push', { target: bad }), {
      status: 400,
      body: { message: /^OS image compute: field "target": (?!.*pw)/ }
    })
})

t.test('a registry that fails in the middle, and one that hangs until a cancel', async t => {
  requireRoot()
  const { c, pack, clean, ended } = await beginning(t)
  t.equal((await pack()).status, 204)
  let hangs = false
  let begun = false
  const image = { manifest: {}, blobs: new Map<string, Buffer>() }
  const { host } = await startHostile(t, scratch(t), image, (url, response, request) => {
    if (url.includes('/manifests/') || request.method === 'HEAD') {
      response.writeHead(404).end()
      return true
    }
    if (request.method === 'POST') {
      response.writeHead(202, { Location: `${url}one` }).end()
      return true
    }
    if (url === '/v2/') return false
    begun = true
    request.once('data', () => hangs || response.destroy())
    return true
  })
  const target = `docker://${host}/site/compute:1`
  const { status, body } = await c.post('/config/osimage/compute/_push', { target })
  t.equal(status, 503)
  // It depends on where skopeo is at that moment.
  const broken = 'EOF|reset|broken pipe|closed network connection'
  t.match(
    body.message,
    new RegExp(`OS image compute: docker:.*(?:${broken}).*; it stopped in the middle: try again`)
  )
  clean('after a failure')
  ;[hangs, begun] = [true, false]
  const asked = await c.post('/config/osimage/compute/_push', { target }, asynchronous)
  await until(() => begun, 'the layer comes')
  t.equal((await c.get(`/config/status/${asked.body.request_id}/_cancel`)).status, 200)
  t.match(await ended('upload'), { state: 'failed', message: /cancelled/ })
  clean('after a cancel')
})
