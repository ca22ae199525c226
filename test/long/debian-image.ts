import { chmod, copyFile, mkdir, readdir, symlink, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { buildInitramfs } from '../../lib/helper/packer/initramfs.js'
import { output } from '../support/programs.js'
import { debianTree, type Release } from './debian-tree.js'
import { documented, dracutAfterwards } from './documented-packages.js'

/** What builds an image's initramfs. */
export type Tool = 'dracut' | 'initramfs-tools'

/** What an osimage names; the files lie in the directory that was asked for. */
export interface DebianImage {
  readonly kernelfile: string
  readonly initrdfile: string
  readonly imagefile: string
  readonly kernelversion: string
}

/** An image to make. */
export interface DebianImageOptions {
  readonly tool: Tool
  /** What the files are named after; default: the tool. */
  readonly name?: string
  /** The controller's files directory. */
  readonly files: string
  /** Where the image's tree is made; it stays there. */
  readonly tree: string
  /** Default: Debian's bookworm. */
  readonly release?: Release
  /** Default: Debian's for virtual machines. */
  readonly kernel?: string
  /**
   * Beside a kernel for virtual machines and what the page says that every image needs (docs/node-side.md).
   */
  readonly packages?: readonly string[]
  /** Changes the tree before it is packed. */
  readonly prepare?: (tree: string) => Promise<void>
  /** Sees what the tool says. */
  readonly line?: (text: string) => void
}

const timeLimitMs = 30 * 60_000

/**
 * A Debian tree with what every image needs, by the page, and an ssh server; the kernel's package brings
 * initramfs-tools.
 */
export async function imageTree(
  options: Pick<DebianImageOptions, 'tool' | 'release' | 'kernel' | 'packages'>
) {
  const { tool, release, kernel = 'linux-image-cloud-amd64', packages = [] } = options
  const [busybox = '', client = ''] = documented('DHCP')
  const own = [...documented('needed', 'to unpack'), tool === 'dracut' ? client : busybox]
  return debianTree({
    packages: [kernel, ...own, 'openssh-server', ...packages],
    ...(tool === 'dracut' ? { afterwards: dracutAfterwards() } : {}),
    ...(release ? { release } : {})
  })
}

/** Kernel options for a real system in software: its console on the serial port, a panic ends the machine. */
export const systemOptions = 'console=ttyS0 panic=-1 no_timer_check systemd.show_status=no'

/**
 * A real Debian image, its initramfs built by this project with the image's own tool, packed by tar and zstd:
 * a kernel, an initramfs and an image file.
 */
export async function debianImage(options: DebianImageOptions): Promise<DebianImage> {
  const { tool, name = tool, files, tree, prepare, line = () => {} } = options
  const source = await imageTree(options)
  await output('cp', ['-a', '-x', source, tree], { timeout: timeLimitMs })
  await reporting(tree)
  await prepare?.(tree)
  const signal = new AbortController().signal
  const kernel = (await readdir(join(tree, 'boot'))).find(name => name.startsWith('vmlinuz-')) ?? ''
  const kernelversion = kernel.replace('vmlinuz-', '')
  const request = { tree, kernelversion, dracutmodules: [], kernelmodules: [] }
  const built = await buildInitramfs({ ...request, signal, timeLimitMs, line })
  if (built?.tool !== tool) throw new Error(`the initramfs was built by ${built?.tool}, not by ${tool}`)
  const image = {
    kernelfile: `vmlinuz-${name}`,
    // As a pack calls it: by that the node knows it in its /boot.
    initrdfile: `${name}-${basename(built.initrd)}`,
    imagefile: `image-${name}.tar.zst`,
    kernelversion
  }
  await mkdir(files, { recursive: true })
  await copyFile(join(tree, 'boot', kernel), join(files, image.kernelfile))
  await copyFile(join(tree, built.initrd), join(files, image.initrdfile))
  const pack = ['--numeric-owner', '--xattrs', '--acls', '--one-file-system', '-I', 'zstd -T0']
  await output('tar', [...pack, '-cf', join(files, image.imagefile), '-C', tree, '.'], {
    timeout: timeLimitMs
  })
  return image
}

/** What the booted system says on its console, once its network is there or 60 s have passed. */
const report = `#!/bin/sh
for _ in $(seq 120); do
  address=$(ip -4 -o address show scope global)
  if [ -n "$address" ] && [ "$(systemctl is-system-running)" != starting ]; then break; fi
  sleep 0.5
done
read -r up _ </proc/uptime
{
  echo
  echo "REPORT hostname $(cat /proc/sys/kernel/hostname)"
  ip -4 -o address show scope global | while read -r _ device _ address _; do
    echo "REPORT address $device $address $(cat "/sys/class/net/$device/address")"
  done
  ip -4 route show default | while read -r route; do echo "REPORT route $route"; done
  echo "REPORT root $(findmnt -n -o FSTYPE,SOURCE /)"
  echo "REPORT state $(systemctl is-system-running) $(systemctl --failed --no-legend --plain | tr '\\n' ' ')"
  echo "REPORT machine-id $(cat /etc/machine-id)"
  echo "REPORT ssh $(systemctl is-active ssh) $(cat /etc/ssh/ssh_host_ed25519_key.pub)"
  if [ -x /usr/local/sbin/svcd-report-more ]; then /usr/local/sbin/svcd-report-more; fi
  echo "REPORT done $up"
} >/dev/console
`

const unit = `[Unit]
Description=Tells the test what has booted
After=multi-user.target

[Service]
ExecStart=/usr/local/sbin/svcd-report
`

/** Changes a tree: its system says on its console what it is, once it is up. */
export async function reporting(tree: string): Promise<void> {
  const put = async (path: string, text: string, mode: number) => {
    await mkdir(dirname(join(tree, path)), { recursive: true })
    await writeFile(join(tree, path), text)
    await chmod(join(tree, path), mode)
  }
  await put('usr/local/sbin/svcd-report', report, 0o755)
  await put('etc/systemd/system/svcd-report.service', unit, 0o644)
  const wants = join(tree, 'etc/systemd/system/multi-user.target.wants')
  await mkdir(wants, { recursive: true })
  await symlink('../svcd-report.service', join(wants, 'svcd-report.service'))
}

/** The value of one line of the report, undefined where the console does not show it. */
export const reported = (console: string, key: string): string | undefined =>
  console.match(new RegExp(`REPORT ${key} (.*)`))?.[1]?.trim()

/** The values of all lines of the report that begin with a word. */
export const allReported = (console: string, key: string): readonly string[] =>
  [...console.matchAll(new RegExp(`REPORT ${key} (.*)`, 'g'))].map(([, value = '']) => value.trim())
