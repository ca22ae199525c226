import { hasAnyInside, textInside } from '../../disk/open-directory.js'
import { isObjectName } from '../../model/names.js'
import { kernelsIn } from '../kernels.js'
import { usualInits } from '../trees.js'

/** The parts of an image that its nodes boot with. */
const meanings = {
  kernel: 'a kernel (below /boot, or /lib/modules/VERSION/vmlinuz)',
  init: 'an init (/sbin/init)',
  initramfs: 'dracut or initramfs-tools'
}

type Need = keyof typeof meanings

/** The packages of a kind of Linux, and the line of a Containerfile that adds them. */
interface Family {
  readonly ids: readonly string[]
  readonly packages: Readonly<Record<Need, string>>
  readonly line: (packages: string) => string
}

const apt = (packages: string) =>
  `RUN apt-get update && apt-get install -y --no-install-recommends ${packages}`

const families: readonly Family[] = [
  {
    ids: ['ubuntu'],
    packages: { kernel: 'linux-image-generic', init: 'systemd-sysv', initramfs: 'initramfs-tools' },
    line: apt
  },
  {
    ids: ['debian'],
    packages: { kernel: 'linux-image-amd64', init: 'systemd-sysv', initramfs: 'initramfs-tools' },
    line: apt
  },
  {
    ids: ['rhel', 'fedora', 'centos', 'rocky', 'almalinux'],
    packages: { kernel: 'kernel', init: 'systemd', initramfs: 'dracut' },
    line: packages => `RUN dnf install -y ${packages}`
  },
  {
    ids: ['suse', 'opensuse', 'sles'],
    packages: { kernel: 'kernel-default', init: 'systemd-sysvinit', initramfs: 'dracut' },
    line: packages => `RUN zypper --non-interactive install ${packages}`
  }
]

/** The kind of system in the tree of an image, and what it lacks to boot. */
export interface System {
  /** For the fields of its object. */
  readonly distribution?: string
  readonly osrelease?: string
  /** One sentence, with the line for a Containerfile. */
  readonly lacking?: string
}

const MOST_OS_RELEASE = 64 * 1024

/** Looks into the tree of an image. Throws unavailable (503) for one with too many kernels. */
export async function systemIn(tree: string): Promise<System> {
  const { ID, ID_LIKE = '', VERSION_ID = '' } = await osRelease(tree)
  const builders = ['usr/bin/dracut', 'usr/sbin/dracut', 'usr/sbin/mkinitramfs']
  const missing: Need[] = []
  if ((await kernelsIn(tree)).length === 0) missing.push('kernel')
  if (!(await hasAnyInside(tree, usualInits))) missing.push('init')
  if (!(await hasAnyInside(tree, builders))) missing.push('initramfs')
  return {
    ...(ID !== undefined && isObjectName(ID) ? { distribution: ID } : {}),
    ...(/^[\w.-]{1,40}$/.test(VERSION_ID) ? { osrelease: VERSION_ID } : {}),
    ...(missing.length > 0 ? { lacking: sentence(missing, [ID ?? '', ...ID_LIKE.split(' ')]) } : {})
  }
}

function sentence(missing: readonly Need[], ids: readonly string[]): string {
  const what = `it lacks ${missing.map(need => meanings[need]).join(' and ')}`
  const [family] = ids.flatMap(id => families.find(({ ids }) => ids.includes(id)) ?? [])
  if (!family) return `${what}: add them in its Containerfile, as docs/oci.md says`
  const packages = missing.map(need => family.packages[need]).join(' ')
  return `${what}; add to its Containerfile: ${family.line(packages)}`
}

/** Reads /etc/os-release; an empty record where there is none. */
async function osRelease(tree: string): Promise<Partial<Record<string, string>>> {
  const text = (await textInside(tree, 'etc/os-release', MOST_OS_RELEASE)) ?? ''
  return Object.fromEntries(
    text.split('\n').flatMap(line => {
      // Trimmed first: an expression that ends in white space takes quadratic time on much of it.
      const [, name, value] = /^([A-Z_]+)=["']?([^"']*)["']?$/.exec(line.trimEnd()) ?? []
      return name === undefined || value === undefined ? [] : [[name, value]]
    })
  )
}
