import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { output } from '../support/programs.js'
import { CrashingDaemon } from './crashing-daemon.js'
import { makeTree, small } from './small-tree.js'

/** In the place of what runs an image's own tool. */
const fakeTool = `
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
export async function buildInitramfs({ tree, kernelversion, dracutmodules, kernelmodules, line }) {
  line('modules ' + JSON.stringify([dracutmodules, kernelmodules]))
  if (kernelversion === '6.1.0-9') throw new Error('no modules for 6.1.0-9')
  const initrd = 'boot/initrd.img-' + kernelversion
  await writeFile(join(tree, initrd), 'built for ' + kernelversion)
  return { tool: 'initramfs-tools', initrd }
}`

// rules 9.4
t.test('the initramfs is built for the kernel that was chosen, before the tar', async t => {
  const daemon = new CrashingDaemon(t)
  daemon.replace('helper/packer/initramfs', fakeTool)
  await daemon.start()
  const { admin: client } = daemon
  const tree = makeTree(daemon.path('images', 'compute'), {
    ...small,
    'usr/sbin/mkinitramfs': '',
    'boot/mine': 'mine'
  })
  await client.post('/config/osimage/compute', {
    dracutmodules: 'nfs, -plymouth',
    kernmodules: 'ixgbe,mlx5_core'
  })
  const image = async () => {
    const { config } = await client.read<{ config: { osimage: Record<string, Record<string, string>> } }>(
      '/config/osimage/compute'
    )
    return config.osimage.compute ?? {}
  }
  const served = (file: string | undefined) => readFileSync(daemon.path('files', `${file}`), 'utf8')
  t.equal((await client.get('/config/osimage/compute/_pack')).status, 204)
  const first = await image()
  t.equal(served(first.initrdfile), 'built for 6.1.0-10')
  const packed = ['--zstd', '-xOf', daemon.path('files', `${first.imagefile}`), './boot/initrd.img-6.1.0-10']
  t.equal(await output('tar', packed), 'built for 6.1.0-10', 'it is in the pack too')
  const { monitor } = await client.read<{ monitor: { request: Record<string, { request_id: string }> } }>(
    '/monitor/request'
  )
  const [{ request_id: id } = { request_id: '' }] = Object.values(monitor.request)
  const record = await client.get(`/monitor/request/${id}`)
  t.match(record.text, JSON.stringify('modules [["nfs","-plymouth"],["ixgbe","mlx5_core"]]').slice(1, -1))

  const failed = await client.post('/config/osimage/compute/kernel', { kernver: '6.1.0-9' })
  t.equal(failed.status, 503)
  t.match(JSON.parse(failed.text).message, /no modules for 6\.1\.0-9/)
  t.same(await image(), first, 'the kernel is as before')

  const own = await client.post('/config/osimage/compute/kernel', {
    kernelfile: 'vmlinuz-6.1.0-9',
    initrdfile: 'mine'
  })
  t.equal(own.status, 204, own.text)
  t.equal(served((await image()).initrdfile), 'mine', "the admin's choice is not built")
  writeFileSync(join(tree, 'etc/hostname'), 'changed')
  t.equal((await client.get('/config/osimage/compute/_pack')).status, 204)
  t.equal(served((await image()).initrdfile), 'mine', 'nor by a later pack')
  t.ok(existsSync(daemon.path('files', `${first.initrdfile}`)), 'the older pack is kept')
  await daemon.kill()
})
