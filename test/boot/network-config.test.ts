import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import type { InstallInterface } from '../../lib/boot/install-data.js'
import { networkConfig } from '../../lib/boot/network-config.js'
import { Templates } from '../../lib/template/templates.js'
import { installData, installInterface } from '../support/install-data.js'
import { parsedYaml } from '../support/yaml.js'

// What cloud-init and subiquity get is what svcd's own installation writes for netplan: two programs from one
// page (docs/interfaces.md), compared over many set-ups.

const templates = new Templates({ directory: fileURLToPath(new URL('../../templates', import.meta.url)) })

/** The file for netplan of the shell functions. */
function written(interfaces: readonly InstallInterface[]): string {
  const text = templates.render('install/templ_installer.cfg', { ...installData({ interfaces }) })
  const functions = text.slice(0, text.lastIndexOf('\ncase ${1:-} in'))
  const input = `${functions}\nsurvey > /dev/null && netplan_text\n`
  return execFileSync('dash', { input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'ignore'] })
}

const second = (changes: Partial<InstallInterface>) =>
  installInterface({
    ...{ interface: 'eth1', network: 'storage', domain: 'storage', ipaddress: '10.150.0.1', prefixlen: 24 },
    ...{ gateway: '10.150.0.254', nameserver: '', macaddress: '52:54:00:00:00:02', provision: false },
    ...changes
  })
const bmc = installInterface({ interface: 'BMC', provision: false, bmc: true })
const none = { network: '', ipaddress: '', gateway: '', nameserver: '', domain: '', prefixlen: 0 }

const isLong = process.env.SVCD_LONG !== undefined
/** The options of the boot interface. */
const own = ['', 'defaultroute=no', 'defaultroute=yes metric=50', 'dhcp=yes mtu=x evil metric=-1']
/** A second interface whose share in the default route depends on the first one's options. */
const routed: readonly Partial<InstallInterface>[] = [
  { options: '' },
  { options: 'defaultroute=yes' },
  { options: 'defaultroute=yes metric=7' },
  { options: 'dhcp=yes metric=9' },
  { ipaddress: '' },
  { macaddress: '', routes: ['10.9.0.0/16 via 10.150.0.9', '10.8.0.0/16 via 10.150.0.8'] }
]
const others: readonly Partial<InstallInterface>[] = [
  { options: 'mtu=4000 unknown' },
  { ...none },
  { macaddress: '00:02:c9:03:00:1a:2b:01' },
  { options: 'on=BOOTIF' },
  { options: 'on=BOOTIF mtu=9000', ipaddress: '' },
  { interface: 'v20', macaddress: '', options: 'vlan=20 link=BOOTIF' },
  { interface: 'eth0.20', macaddress: '', options: 'vlan=20 metric=3' },
  { interface: 'v', options: 'vlan=20' },
  { interface: 'v', options: 'vlan=5000 link=eth0' },
  { interface: 'bond0', options: 'bond=eth1,eth2 mode=802.3ad mtu=9000' },
  { interface: 'bond0', macaddress: '', options: 'bond=eth1,eth2 mode=evil' },
  { interface: 'br0', options: 'bridge=BOOTIF,eth2' }
]

// rules 4.40
t.test('the interfaces are those of the files that the installation writes', t => {
  const withEvery = (other: Partial<InstallInterface>) => own.map(options => ({ options, other }))
  // Each pair takes a dash of its own: what is not about routes has one of the own options, in turns.
  const withOne = (other: Partial<InstallInterface>, i: number) => withEvery(other).slice(i % 4, (i % 4) + 1)
  const pairs = [...routed.flatMap(withEvery), ...others.flatMap(isLong ? withEvery : withOne)]
  const cases = pairs.map(({ options, other }) => [installInterface({ options }), second(other), bmc])
  cases.push(
    [installInterface({ ipaddress: '' })],
    [installInterface(), second({ interface: 'a.b', options: '' })]
  )
  const texts = parsedYaml(cases.map(written)) as { network: object }[]
  const given = parsedYaml(cases.map(interfaces => JSON.stringify(networkConfig(interfaces))))
  t.equal(cases.length, (isLong ? own.length : 1) * others.length + own.length * routed.length + 2)
  for (const [i, interfaces] of cases.entries())
    t.strictSame(given[i], texts[i]?.network, interfaces.map(({ options }) => options).join(', '))
  t.end()
})
