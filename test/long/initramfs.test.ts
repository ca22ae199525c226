import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { buildInitramfs } from '../../lib/helper/packer/initramfs.js'
import { initramfsOf } from '../../lib/helper/packer/initramfs-cache.js'
import { requireRootAndPrograms, run, workDirectory } from '../image/rich-tree.js'
import { imageTree } from './debian-image.js'
import { documented } from './documented-packages.js'

requireRootAndPrograms()

// rules 9.4
for (const [tool, read] of [
  ['dracut', 'etc/dracut.conf'],
  ['initramfs-tools', 'etc/initramfs-tools/initramfs.conf']
] as const)
  t.test(
    `a real Debian with ${tool}: what it may be made of counts, the rest does not`,
    { timeout: 3_600_000 },
    async t => {
      const tree = join(workDirectory(t), 'tree')
      const source = await imageTree({ tool, packages: documented('disks') })
      run('cp', '--archive', '--one-file-system', source, tree)
      const [kernelversion = ''] = readdirSync(join(tree, 'usr/lib/modules'))
      // Drivers as DKMS, a kmod package and weak-updates put them: no initramfs has these of the kernel.
      const added = { 'updates/dkms': 'dummy', 'extra/site': 'ifb', 'weak-updates/site': 'veth' }
      const modules = join(tree, 'usr/lib/modules', kernelversion)
      for (const [directory, name] of Object.entries(added)) {
        mkdirSync(join(modules, directory), { recursive: true })
        run('mv', join(modules, 'kernel/drivers/net', `${name}.ko`), join(modules, directory))
      }
      run('chroot', tree, 'depmod', kernelversion)
      let record: string | undefined
      const renew = async () => {
        const lines: string[] = []
        const request = { kernelversion, dracutmodules: [], kernelmodules: [] }
        const limits = { signal: new AbortController().signal, timeLimitMs: 1_800_000 }
        const asked = { ...request, ...limits, line: (text: string) => lines.push(text), tree }
        const start = performance.now()
        const build = () => buildInitramfs(asked)
        const renewed = await initramfsOf({ ...asked, path: tree, record, build })
        const seconds = ((performance.now() - start) / 1000).toFixed(2)
        t.comment(`${lines.find(line => line.startsWith('the initramfs'))}: ${seconds} s`)
        t.equal(renewed?.tool, tool)
        if (renewed?.isBuilt) {
          record = renewed.record
          t.type(record, 'string', lines.join('\n'))
          t.comment(`record: ${record?.length} bytes`)
        }
        return renewed?.isBuilt
      }
      const write = (path: string) => writeFileSync(join(tree, path), `# ${path}\n`, { flag: 'a' })

      t.equal(await renew(), true)
      const initrd = join(tree, 'boot', `initrd.img-${kernelversion}`)
      const list = tool === 'dracut' ? 'lsinitrd' : 'lsinitramfs'
      const held = run('chroot', tree, list, `/boot/initrd.img-${kernelversion}`).toString()
      for (const [directory, name] of Object.entries(added))
        t.match(held, `${kernelversion}/${directory}/${name}.ko`, directory)
      const { mtimeMs } = statSync(initrd)
      t.equal(await renew(), false)
      for (const path of ['var/log/dpkg.log', 'var/lib/dpkg/status']) write(path)
      write('var/cache/new')
      t.equal(await renew(), false)
      t.equal(statSync(initrd).mtimeMs, mtimeMs)
      write(read)
      t.equal(await renew(), true, read)
      t.equal(await renew(), false)
      write('etc/added')
      t.equal(await renew(), true, 'a new name in /etc')
      write('usr/lib/os-release')
      t.equal(await renew(), true, 'a file of /usr')
    }
  )
