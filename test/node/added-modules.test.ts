import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

/** What modinfo says: the class of a display, and what a module needs. */
const said: Record<string, [alias: string, depends: string]> = {
  nvidia: ['pci:v000010DEd*sv*sd*bc03sc02i00*', ''],
  'nvidia-uvm': ['', 'nvidia'],
  nvidia_drm: ['', 'drm,nvidia-modeset'],
  'nvidia-modeset': ['pci:v0d*bc03sc00i00*', ''],
  ixgbe: ['pci:v00008086d000010B6sv*sd*bc*sc*i*', 'dca'],
  r8125: ['pci:v000010ECd00008125sv*sd*bc02sc00i*', ''],
  mlx5_core: ['pci:v000015B3d00001019sv*sd*bc*sc*i*', 'mlx_compat'],
  'mpt3sas-vendor': ['', ''],
  r8168: ['', ''],
  hfi: ['', '']
}

// rules 9.4
t.test(
  'drivers that did not come with the kernel go into the initramfs, by dracut and by initramfs-tools',
  async t => {
    const root = scratch(t)
    const modules = join(root, 'lib/modules/6.1.0-9')
    const write = (path: string, text = '', mode = 0o644) => {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), text)
      chmodSync(join(root, path), mode)
    }
    const files = {
      'updates/dkms/r8125.ko.xz': 'r8125',
      'updates/nvidia.ko.zst': 'nvidia',
      'updates/dkms/nvidia-uvm.ko': 'nvidia-uvm',
      'updates/dkms/nvidia-drm.ko': 'nvidia_drm',
      'extra/nvidia/nvidia-modeset.ko': 'nvidia-modeset',
      'extra/mlnx-ofa_kernel/drivers/net/mlx5_core.ko.gz': 'mlx5_core',
      'extra/mpt3sas-vendor.ko': 'mpt3sas-vendor',
      'misc/r8168.ko': 'r8168',
      'site-drivers/net/hfi.ko': 'hfi',
      'kernel/drivers/net/in-tree.ko': 'no',
      'build/drivers/net/in-tree.ko': 'no'
    }
    for (const path of Object.keys(files)) write(`lib/modules/6.1.0-9/${path}`)
    write('lib/modules/6.1.0-9/extra/README.txt')
    mkdirSync(join(modules, 'weak-updates/ixgbe'), { recursive: true })
    symlinkSync('/lib/modules/6.1.0-8/extra/ixgbe/ixgbe.ko', join(modules, 'weak-updates/ixgbe/ixgbe.ko'))
    const answers = Object.entries({ ...files, 'weak-updates/ixgbe/ixgbe.ko': 'ixgbe' }).map(
      ([path, name]) => {
        const [alias = '', depends = ''] = said[name] ?? []
        return `*:*/${path}) case $2 in alias) echo '${alias}' ;; *) echo '${depends}' ;; esac ;;`
      }
    )
    write('bin/modinfo', `#!/bin/sh\ncase $2:$3 in\n${answers.join('\n')}\nesac\n`, 0o755)
    const env = [`PATH=${root}/bin:/usr/sbin:/usr/bin:/sbin:/bin`, 'LC_ALL=C']
    const wanted = ['hfi', 'ixgbe', 'mlx5_core', 'mpt3sas_vendor', 'r8125', 'r8168']
    const taken = (text: string) => {
      const names = text.split(/\s+/)
      t.ok(names.includes('virtio_net'), 'those of the kernel')
      t.strictSame(
        [...wanted, 'nvidia', 'nvidia_uvm', 'nvidia_drm', 'in_tree'].filter(n => names.includes(n)),
        wanted
      )
    }

    const setup = join(checkout, 'dracut/90svc/module-setup.sh')
    const dracut = `moddir=${dirname(setup)}; instmods() { printf '%s\\n' "$@"; }; . ${setup}; installkernel </dev/null`
    const run = (srcmods: string) => output('env', [...env, 'bash', '-euc', `srcmods=${srcmods}; ${dracut}`])
    taken(await run(`${modules}/`))
    t.notMatch(await run(`${root}/none`), 'r8125', 'a kernel without such modules')

    const functions =
      'manual_add_modules() { printf "%s\\n" "$@"; }\ncopy_exec() { :; }\ncopy_file() { :; }\n'
    write('functions', `${functions}copy_modules_dir() { :; }\n`)
    const hook = readFileSync(join(checkout, 'initramfs-tools/hooks/svc'), 'utf8')
      .replace('/usr/share/initramfs-tools/hook-functions', `${root}/functions`)
      .replaceAll('/lib/modules', `${root}/lib/modules`)
      .replace(/take_program\(\) \{[^}]*\}/, 'take_program() { :; }')
    write('svc/svc-contents.sh', readFileSync(join(checkout, 'dracut/90svc/svc-contents.sh'), 'utf8'))
    for (const part of ['node', 'arguments', 'interface', 'http', 'fetch', 'trust', 'dhcp'])
      write(`svc/svc-${part}.sh`)
    write('hooks/svc', hook)
    const variables = [...env, `DESTDIR=${join(root, 'dest')}`, 'version=6.1.0-9']
    taken(await output('env', [...variables, 'sh', join(root, 'hooks/svc')]))
  }
)
