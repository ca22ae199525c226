import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { checkout, requirePrograms, requireRoot } from '../support/programs.js'

// The initramfs has all that a streamed root needs (rules 4.46).

const at = join(checkout, 'dracut/90svc')

t.test('the interface of the boot keeps its link-local address of IPv6', async t => {
  requireRoot()
  requirePrograms('unshare', 'ip')
  // systemd-networkd waits for one, and the kernel gives none to an interface that is up already.
  const words = `
    ip link add node0 type veth peer name other
    ip link set other up
    ip link set node0 up
    until ip -6 -o address show dev node0 | grep -q fe80; do sleep 0.05; done
    ip address add 10.9.9.9/24 dev node0
    . ${at}/svc-interface.sh
    for name in log await_link lease_end; do eval "$name() { :; }"; done
    SVC_BOOTIF=node0 SVC_BOOTPROTO=static SVC_IP=10.142.0.2/24 SVC_URL=http://10.142.0.1:7050 SVC_OTHERS=''
    network_up
    interface=node0 sh ${at}/svc-dhcp.sh deconfig
    ip -o address show dev node0 | sed 's/  */ /g' | cut -d' ' -f3`
  const shown = execFileSync('unshare', ['-n', 'dash', '-euc', words], { encoding: 'utf8' })
  t.strictSame(shown.trim().split('\n'), ['inet6'], 'the addresses of IPv4 are gone, that of IPv6 is there')
})

t.test('dracut takes all libraries that programs load by name, and the names of interfaces', async t => {
  requireRoot()
  const silent = ['inst_multiple', 'inst_script', 'inst_hook', 'svc_seal_lacks']
    .map(name => `${name}() { :; }`)
    .join('\n')
  const words = `mount -t tmpfs tmpfs /etc && mkdir -p /etc/systemd/network && : >/etc/systemd/network/10-site.link
    moddir=${at}; . ${at}/module-setup.sh
    ${silent}
    inst_simple() { case $1 in /etc/systemd/*) echo "$1" ;; esac; }
    inst_libdir_file() { printf '%s\\n' "$@"; }
    initdir=$(mktemp -d); install; rm -r "$initdir"`
  const taken = execFileSync('unshare', ['-m', 'bash', '-uc', words], { encoding: 'utf8' }).trim().split('\n')
  t.strictSame(taken, [
    '/etc/systemd/network/10-site.link',
    ...['libnss_dns.so.*', 'libnss_files.so.*', 'libtss2-tcti-device.so.*'],
    ...['nbdkit/plugins/nbdkit-curl-plugin.so', 'nbdkit/filters/nbdkit-retry-filter.so']
  ])
})
