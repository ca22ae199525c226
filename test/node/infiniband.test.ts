import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkout, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requirePrograms('unshare', 'mount')

const guid = '00:02:c9:03:00:1a:2b:3c'
const cards: Readonly<Record<string, string>> = {
  eth0: '03:00:1a:2b:3c:4d',
  // The Ethernet side of the same adapter.
  eth1: '02:c9:1a:2b:3c:00',
  ibp1s0: `80:00:00:48:fe:80:00:00:00:00:00:00:${guid}`,
  ibp1s0d1: '80:00:00:49:fe:80:00:00:00:00:00:00:00:02:c9:03:00:1a:2b:3d',
  lo: '00:00:00:00:00:00'
}

/** Runs shell words where the kernel has these cards. */
function where(directory: string, words: string): string {
  for (const [name, address] of Object.entries(cards)) {
    mkdirSync(join(directory, name), { recursive: true })
    writeFileSync(join(directory, name, 'address'), `${address}\n`)
  }
  const script = `mount --bind ${directory} /sys/class/net && cd ${checkout} && ${words}`
  return execFileSync('unshare', ['-m', 'dash', '-c', script], { encoding: 'utf8' }).trim()
}

// rules 3.9
t.test('the initramfs finds a port by its GUID, and a card by its whole MAC', async t => {
  const found = (mac: string) =>
    where(scratch(t), `. ./dracut/90svc/svc-interface.sh; interface_of ${mac}; echo "$SVC_BOOTIF"`)
  t.equal(found(guid), 'ibp1s0')
  t.equal(found(cards.eth0 ?? ''), 'eth0')
  t.equal(found('02:c9:03:00:1a:2b'), '', 'the end of no longer address')
  t.equal(found('03:00:1a:2b:3c:00'), '')
  t.equal(found('00:02:c9:03:00:1a:2b:3e'), '')
})

// rules 3.9
t.test('the installation writes the name that a port has', async t => {
  const set = `IF_NAME=ib0 IF_DEVICE=ib0 IF_OPTIONS='' IF_MAC=`
  const kind = (mac: string) =>
    where(
      scratch(t),
      `. ./templates/install/lib/interface.sh; ${set}${mac}; interface_options; interface_kind; echo "$IF_KIND $IF_DEVICE $IF_GUID"`
    )
  t.equal(kind(guid), `infiniband ibp1s0 ${guid}`)
  t.equal(kind('00:02:c9:03:00:1a:2b:3e'), 'infiniband ib0 00:02:c9:03:00:1a:2b:3e', 'one that is not there')
  t.equal(kind("''"), 'infiniband ib0')
})

// rules 4.17
t.test('svc.mac may be a GUID', async t => {
  const check = (mac: string) => {
    const values = `SVC_URL=http://10.0.0.1:7050 SVC_NODE=n1 SVC_OTHERS='' SVC_BOOTPROTO=dhcp SVC_IP='' SVC_HOSTNAME=n1 SVC_SERVICE=0 SVC_WAIT=30`
    const says = 'refuse() { echo "refused $1"; return 1; }; check_url() { :; }'
    return where(
      scratch(t),
      `. ./dracut/90svc/svc-arguments.sh; ${says}; ${values} SVC_MAC=${mac}; check_arguments; true`
    )
  }
  for (const mac of ['52:54:00:00:00:01', guid]) t.equal(check(mac), '', mac)
  for (const mac of [
    '52:54:00:00:00',
    '52:54:00:00:00:0g',
    '00:02:c9:03:00:1a:2b:3c:4d',
    '00:02:c9:03:00:1a:2b:zz'
  ])
    t.equal(check(mac), 'refused mac', mac)
})
