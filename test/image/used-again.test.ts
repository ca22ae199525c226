import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { CrashingDaemon } from './crashing-daemon.js'
import { kernel, Tree } from './initramfs-tree.js'

requireRoot()
requirePrograms('busybox', 'unshare', 'setpriv')

const tool = `#!/bin/sh
for file in "$@"; do
  case $file in
    /tmp/svc/initrd) out=$file ;;
  esac
done
cat /etc/read >"$out"
[ ! -e /etc/fails ]
`

// rules 9.4
t.test('a pack uses the initramfs of the last one, over a restart too', { timeout: 200_000 }, async t => {
  const image = new Tree(t, 'dracut')
  image.program('dracut', tool)
  image.write('etc/read', 'words\n')
  image.write(`boot/vmlinuz-${kernel}`, 'a kernel\n')
  const daemon = new CrashingDaemon(t)
  await daemon.start()
  const tree = daemon.path('images', 'compute')
  execFileSync('sh', ['-c', 'mkdir -p "$1" && cp -a "$0" "$2"', image.path, daemon.path('images'), tree])
  const put = (path: string, text: string) => writeFileSync(join(tree, path), text)
  const record = daemon.path('state', 'initramfs', 'compute')
  await daemon.admin.post('/config/osimage/compute', {})

  /** Packs; gives whether the initramfs was built. */
  const packed = async (status = 204) => {
    const answer = await daemon.admin.get('/config/osimage/compute/_pack')
    t.equal(answer.status, status, answer.text)
    const { monitor } = await daemon.admin.read<{
      monitor: { request: Record<string, { request_id: string }> }
    }>('/monitor/request')
    const [{ request_id: id } = { request_id: '' }] = Object.values(monitor.request)
    const { text } = await daemon.admin.get(`/monitor/request/${id}`)
    const isUsed = text.includes(
      'the initramfs of the last pack is used: nothing that it is made of has changed'
    )
    t.not(isUsed, text.includes('the initramfs is built: '), 'the record of the request says which')
    const { config } = await daemon.admin.read<{
      config: { osimage: Record<string, { initrdfile: string }> }
    }>('/config/osimage/compute')
    if (status === 204) {
      const file = daemon.path('files', `${config.osimage.compute?.initrdfile}`)
      t.equal(readFileSync(file, 'utf8'), readFileSync(join(tree, 'etc/read'), 'utf8'), 'it is served')
    }
    return !isUsed
  }

  t.equal(await packed(), true)
  t.equal(statSync(record).mode & 0o777, 0o600)
  mkdirSync(join(tree, 'var/cache'), { recursive: true })
  put('var/cache/file', 'other words\n')
  t.equal(await packed(), false)
  await daemon.stop()
  await daemon.start()
  t.equal(await packed(), false, 'after a restart')
  put('etc/read', 'other words\n')
  t.equal(await packed(), true)
  t.equal(await packed(), false)

  rmSync(join(tree, `boot/initramfs-${kernel}.img`))
  t.equal(await packed(), true, 'by hand: who removes it has it built')
  rmSync(record)
  t.equal(await packed(), true, 'without a record')
  writeFileSync(record, readFileSync(record, 'utf8').slice(0, -1))
  t.equal(await packed(), true, 'with half a record')
  t.equal(await packed(), false)

  await daemon.stop()
  appendFileSync(join(daemon.tree, 'dracut/90svc/svc-node.sh'), '# new\n')
  await daemon.start()
  t.equal(await packed(), true, 'svcd’s own part is another one')
  await daemon.stop()
  const manifest = join(daemon.tree, 'package.json')
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(/"version": "/, '"version": "9'))
  await daemon.start()
  t.equal(await packed(), true, 'svcd is another version')

  await daemon.admin.post('/config/osimage/compute', { kernmodules: 'xfs' })
  t.equal(await packed(), true, 'another module')
  put('etc/fails', '')
  t.equal(await packed(503), true, 'a build that fails')
  rmSync(join(tree, 'etc/fails'))
  t.equal(await packed(), false, 'all is again as it was before that')

  execFileSync('cp', ['-a', tree, daemon.path('images', 'other')])
  await daemon.admin.post('/config/osimage/other', {})
  t.match(await daemon.admin.get('/config/osimage/compute/_delete'), { status: 204 })
  await daemon.admin.post('/config/osimage/third', {})
  // A killed write left the first, and the last is being written.
  for (const name of ['other.4294967295', 'compute.1', 'third.1'])
    writeFileSync(daemon.path('state', 'initramfs', name), '')
  t.match(await daemon.admin.get('/config/osimage/other/_pack'), { status: 204 })
  t.strictSame(
    readdirSync(daemon.path('state', 'initramfs')).sort(),
    ['other', 'third.1'],
    'no record of an image that is gone'
  )
  await daemon.stop()
})
