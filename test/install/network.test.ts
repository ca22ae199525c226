import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import type { InstallData, InstallInterface } from '../../lib/boot/install-data.js'
import { installInterface } from './data.js'
import { packImage } from './image.js'
import { completed, install } from './install.js'
import { shells } from './machine.js'

const golden = fileURLToPath(new URL('golden', import.meta.url))

const ib0 = installInterface({
  interface: 'ib0',
  network: 'ib',
  domain: 'ib',
  ipaddress: '10.149.0.1',
  gateway: '10.149.255.254',
  nameserver: '',
  macaddress: '',
  options: 'mtu=2044',
  provision: false
})
const storage: InstallInterface = {
  ...ib0,
  interface: 'eth1',
  network: 'storage',
  domain: 'storage',
  ipaddress: '10.150.0.1',
  prefixlen: 24,
  nameserver: '10.150.0.253',
  macaddress: '52:54:00:00:00:02',
  options: 'mtu=9000 unknown mtu=x'
}
const bmc = installInterface({ interface: 'BMC', ipaddress: '10.148.0.1', provision: false, bmc: true })
const fixed = [installInterface(), ib0, storage, bmc]
const dynamic = [
  installInterface({ ipaddress: '', macaddress: '' }),
  { ...storage, ipaddress: '', options: '' }
]

const chrony = {
  'etc/chrony.conf': 'pool old.example\n',
  'etc/resolv.conf': '-> /run/systemd/resolve/stub-resolv.conf'
}
const networkd = { 'usr/lib/systemd/system/systemd-networkd.service': '' }
const cases: Record<string, [data: Partial<InstallData>, files: Record<string, string>]> = {
  redhat: [{ distribution: 'redhat', interfaces: fixed }, chrony],
  'redhat-dhcp': [{ distribution: 'redhat', interfaces: dynamic, ntp_server: 'ntp.example' }, {}],
  opensuse: [{ distribution: 'opensuse', interfaces: fixed }, {}],
  ubuntu: [{ distribution: 'ubuntu', interfaces: fixed }, {}],
  'ubuntu-dhcp': [{ distribution: 'ubuntu', interfaces: dynamic }, {}],
  'debian-networkd': [{ distribution: 'debian', interfaces: fixed }, networkd],
  'debian-networkd-dhcp': [{ distribution: 'debian', interfaces: dynamic }, networkd],
  'debian-ifupdown': [{ distribution: 'debian', interfaces: fixed }, { 'usr/sbin/ifup': '#!/bin/sh' }],
  'debian-ifupdown-dhcp': [{ distribution: 'debian', interfaces: dynamic }, { 'usr/sbin/ifup': '#!/bin/sh' }],
  unknown: [{ distribution: 'other', interfaces: [installInterface()] }, {}]
}

/** Every file and link below etc/ of an image as one text. */
function listing(directory: string): string {
  const find = ['etc', '(', '-type', 'f', '-o', '-type', 'l', ')', '-printf', '%p %m %l\n']
  const lines = execFileSync('find', find, { cwd: directory, encoding: 'utf8' }).trim().split('\n').sort()
  return lines
    .map(line => {
      const [path = '', mode = '', ...link] = line.split(' ')
      if (link.join('')) return `=== ${path} -> ${link.join(' ')}\n`
      return `=== ${path} ${mode}\n${readFileSync(`${directory}/${path}`, 'utf8')}`
    })
    .join('')
}

for (const shell of shells) {
  for (const [name, [data, files]] of Object.entries(cases)) {
    t.test(`network files: ${name}, ${shell}`, async t => {
      const answers = { '/files/rocky9.tar.gz': packImage(files) }
      const done = await install(t, { shell, data, answers })
      completed(t, done)
      const found = listing(done.machine.image(''))
      const file = `${golden}/${name}.txt`
      // To make the golden files anew: SVC_GOLDEN=1 npx tap test/install/network.test.ts, then read the difference.
      if (process.env.SVC_GOLDEN) {
        mkdirSync(golden, { recursive: true })
        writeFileSync(file, found)
      }
      t.equal(found, readFileSync(file, 'utf8'))
      t.notMatch(found, '10.148.0.1', "the BMC's interface is not the operating system's")
    })
  }
}

t.test('a second installation over the same image leaves one block, and the lines of others', async t => {
  const hosts = '127.0.0.1 localhost\n# svc begin\n10.141.0.9 old\n# svc end\n10.9.9.9 license'
  const done = await install(t, {
    shell: 'ash',
    answers: { '/files/rocky9.tar.gz': packImage({ 'etc/hosts': hosts }) }
  })
  completed(t, done)
  t.equal(
    done.machine.read('etc/hosts'),
    '127.0.0.1 localhost\n10.9.9.9 license\n# svc begin\n10.141.0.1 node001.cluster node001\n# svc end\n'
  )
  t.equal(statSync(done.machine.image('etc/hosts')).mode & 0o777, 0o644)
})

t.test('an unknown MAC of the boot interface is the one it was booted with', async t => {
  const done = await install(t, {
    shell: 'ash',
    environment: { SVC_MAC: '52:54:00:aa:bb:cc' },
    data: { interfaces: [installInterface({ macaddress: '' })] }
  })
  completed(t, done)
  t.match(
    done.machine.read('etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection'),
    'mac-address=52:54:00:aa:bb:cc'
  )
})
