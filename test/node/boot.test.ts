import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Shell } from '../support/node-root.js'
import { checkout } from '../support/programs.js'
import { BootingNode, installScript, kernelArguments, mac, shells, url } from './booting-node.js'

const refusal = (status: number, message: string) => ({ status, body: JSON.stringify({ message }) })
const served = (commands?: string) => ({ status: 200, body: installScript(commands) })
const ready = /svc: node001 is ready|svc: trying again in 8 s/
// They wait more than they work.
t.jobs = 8

const failed = /svc: trying again/

for (const shell of shells) {
  // rules 4.17
  t.test(`${shell}: refused at first, then installed`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [
      refusal(503, 'the service is \u001b[31mstarting'),
      refusal(401, 'the address 10.142.0.9 is no "address" of\nnode001'),
      served(
        'env | sort | grep ^SVC_ >/result; hostname >>/result; stat -c %a /run/svc /run/svc/install >>/result'
      )
    ])
    const console = await node.boot({}, ready)
    // Busybox's wget does not show the body of a refusal, GNU's not that of a 401.
    const shows = { bash: [true, true], dash: [true, false], ash: [false, false], klibc: [true, true] }[shell]
    t.match(console, /node001 \(node001\.cluster\), controller http:\/\/10\.142\.0\.1:7050/)
    t.match(console, `interface node0 has the address ${mac}`)
    t.match(console, 'interface node0 is up: static 10.142.0.2/24')
    t.match(console, shows[0] ? /answered 503.*: the service is \S*starting/ : /HTTP\/1.1 503/)
    t.match(
      console,
      shows[1] ? /answered 401.*: the address 10\.142\.0\.9 is no "address" of node001/ : /401/
    )
    t.notMatch(console, '\u001b', 'what the controller says cannot steer the terminal')
    t.strictSame(node.requests(), Array(3).fill('GET /boot/install/node001'))
    t.strictSame(node.text('result').trim().split('\n'), [
      'SVC_BOOTIF=node0',
      'SVC_BOOTPROTO=static',
      'SVC_HOSTNAME=node001.cluster',
      'SVC_INSTALLING=yes',
      'SVC_IP=10.142.0.2/24',
      `SVC_MAC=${mac}`,
      'SVC_NODE=node001',
      'SVC_PIN=',
      'SVC_SERVICE=0',
      `SVC_URL=${url}`,
      'node001.cluster',
      '700',
      '600'
    ])
    t.match(console, /svc: node001 is ready after \d+ s/)
    const left = await node.interface()
    t.notMatch(left, '10.142.0.2', 'the booted system finds its interface without an address')
    t.match(left, /state DOWN/, 'and down')
  })

  t.test(`${shell}: an install script that fails is fetched and run again`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [
      { status: 200, body: '#!/bin/sh\necho svc: FAILED in step unpack\nexit 3\n' },
      { status: 200, body: '#!/bin/sh\ntrue\n' },
      { status: 200, body: '<html>log in first</html>' },
      served()
    ])
    const console = await node.boot({}, ready)
    t.match(
      console,
      /FAILED in step unpack\n.*FAILED in step install: the install script ended with status 3/
    )
    t.match(console, /FAILED in step install: .*nothing is mounted on \/sysroot/)
    t.match(console, /the answer is no script, it begins with '<html>log in first<\/html>'/)
    t.match(console, /svc: node001 is ready/)
  })

  // rules 4.17
  t.test(`${shell}: kernel arguments are data`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [served('touch /ran')])
    const evil = '$(touch${IFS}/pwned)`touch${IFS}/pwned`;touch${IFS}/pwned'
    const hostile: Record<string, [value: string, says: RegExp][]> = {
      'svc.node': [
        [evil, /svc\.node=\S+ is not a node name/],
        ['../../files/x', /is not a node name/],
        ['-o', /is not a node name/]
      ],
      'svc.url': [
        [`http://10.142.0.1/${evil}`, /svc\.url=\S+ is not a URL/],
        ['file:///etc/passwd', /is not a URL/],
        ['', /svc\.url= is not a URL/]
      ],
      'svc.ip': [
        [evil, /svc\.ip=\S+ is not an address with its prefix length/],
        ['10.142.0.2', /is not an address/]
      ],
      'svc.mac': [[`${mac}:00`, /is not a MAC address/]],
      'svc.bootproto': [['*', /svc\.bootproto=\* is not static or dhcp/]],
      'svc.hostname': [[evil, /is not a host name/]],
      'svc.wait': [['08x', /is not a number of seconds/]]
    }
    for (const [name, cases] of Object.entries(hostile))
      for (const [i, [value, says]] of cases.entries()) {
        // The further ones are of the same pattern, and patterns are those of POSIX.
        if (i > 0 && shell !== 'ash' && !process.env.SVCD_LONG) continue
        const console = await node.boot({ [name]: value }, failed)
        t.match(console, /FAILED in step arguments: the kernel argument/, `${name}, case ${i + 1}`)
        t.match(console, says)
      }
    t.notOk(node.has('pwned'), 'no shell saw a value')
    t.notOk(node.has('ran'))
    t.strictSame(node.requests(), [])
  })

  t.test(`${shell}: an address by DHCP`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [
      served('cat /etc/resolv.conf >/result; ip route >>/result')
    ])
    await node.dhcpServer()
    const console = await node.boot({ 'svc.bootproto': 'dhcp', 'svc.ip': '' }, ready)
    t.match(console, /svc: interface node0 is up: dhcp 10\.142\.0\.1\d\d\/24/)
    t.match(node.text('result'), /^nameserver 10\.142\.0\.1\nnameserver 10\.142\.0\.3\n/)
    t.match(node.text('result'), /^default via 10\.142\.0\.1 dev node0/m)
    t.match(console, /svc: node001 is ready/)
  })

  t.test(`${shell}: no such interface, and then no DHCP server answers`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [served()])
    const console = await node.boot({ 'svc.mac': '52:54:00:15:00:99', 'svc.wait': '1' }, failed)
    t.match(console, /waiting up to 1 s for the network interface with the address 52:54:00:15:00:99/)
    t.match(
      console,
      /FAILED in step interface: no network interface has .*; there are:.* node0 \(52:54:00:15:00:01\)/
    )
    const silent = await node.boot({ 'svc.bootproto': 'dhcp', 'svc.wait': '2' }, failed)
    t.match(silent, `FAILED in step network: no DHCP server gave interface node0 (${mac}) an address`)
  })

  t.test(`${shell}: a service node gets a shell, and goes on after it`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [{ status: 200, body: '#!/bin/sh\nexit 1\n' }, served()])
    const typed = 'echo $((6 * 7)) >/result\nexit\n'
    const console = await node.boot({ 'svc.service': '1' }, ready, typed)
    t.match(console, /FAILED in step install/)
    t.match(console, /svc\.service=1: a shell/)
    t.equal(node.text('result').trim(), '42', 'what was typed was done')
    t.match(console, /svc: node001 is ready/)
  })
}

/** The pause of a hook before it starts the node's side again. */
const sooner = 'sleep() { /bin/sleep 0.2; }\n'
const hooks: Record<string, string> = {
  dracut: `${sooner}getarg() { echo svc; }
. /usr/lib/svc/svc-pre-mount.sh
echo "handed over: $(ls /sysroot; grep svctmp /proc/mounts)"
exec sleep 600
`,
  'initramfs-tools': `${sooner}${readFileSync(join(checkout, 'initramfs-tools/scripts/svc'), 'utf8')}
rootmnt=/root
mountroot
echo "handed over: $(ls /root; grep svctmp /proc/mounts)"
exec sleep 600
`
}
/** In `make test` each shell has one of the hooks, and ash has both. */
const isTried = (shell: Shell, tool: string) =>
  shell === 'ash' ||
  (shell === 'klibc') === (tool === 'initramfs-tools') ||
  process.env.SVCD_LONG !== undefined
for (const [tool, hook] of Object.entries(hooks))
  for (const shell of shells.filter(shell => isTried(shell, tool)))
    t.test(`${shell}: half an image is never handed over, ${tool}`, { buffered: true }, async t => {
      // Killed as by a kernel without memory: first the node's side, then the script, each while it unpacks.
      const half = (victim: string) => `mount -t tmpfs half /sysroot
touch /sysroot/half
(while :; do date >>/late; sleep 0.1; done) &
kill -9 ${victim}
while :; do date >>/late; sleep 0.1; done`
      const node = await BootingNode.make(t, shell, [
        served(half('$PPID')),
        served(half('$$')),
        served(`mkdir /svctmp; mount -t tmpfs svctmp /svctmp
rm /late; sleep 1; umount /sysroot; umount /sysroot`)
      ])
      node.write('hook', hook)
      mkdirSync(join(node.root, 'root'))
      const console = await node.boot({}, /handed over:[^\n]*\n/, '', '/hook')
      t.match(console, /the node's side was ended with status 137: starting it again in 10 s/)
      t.match(console, /FAILED in step install: the install script ended with status 137/)
      t.match(console, /handed over: *[\r\n]/, 'the whole image, and no memory beside it')
      t.notOk(node.has('late'), 'nothing of an earlier script runs on')
    })

t.test('the last of a repeated argument counts, as for the kernel itself', { buffered: true }, async t => {
  const node = await BootingNode.make(t, 'dash', [served('echo "$SVC_NODE" >/result')])
  await node.boot(
    { root: 'svc svc.node=node002', initrd: `initrd.img svc.node=${kernelArguments['svc.node']}` },
    ready
  )
  t.equal(node.text('result').trim(), 'node001')
})

for (const shell of shells) {
  // rules 4.28
  t.test(`${shell}: the first of several controllers that gives the script`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [
      refusal(503, 'starting'),
      served('env | grep ^SVC_URL >/result')
    ])
    // Nothing listens at the first port, nobody has the second address.
    const dead = 'http://10.142.0.1:7'
    const gone = 'http://10.142.0.77:7050'
    const console = await node.boot({ 'svc.url': dead, 'svc.urls': `${url},${gone}` }, ready)
    t.match(console, `controller ${dead}, else ${url} ${gone}`)
    const said = [...console.matchAll(/svc: (http:\S+)\/boot\/install\/node001: ./g)].map(([, at]) => at)
    t.strictSame(said, [dead, url, gone, dead], 'each in turn, and again from the first')
    t.strictSame(node.requests(), Array(2).fill('GET /boot/install/node001'))
    t.equal(node.text('result').trim(), `SVC_URL=${url}`, 'the one that gave it')
    t.match(console, /svc: node001 is ready/)
  })

  t.test(`${shell}: further URLs are data too`, { buffered: true }, async t => {
    const node = await BootingNode.make(t, shell, [served('touch /ran')])
    const values = ['$(touch${IFS}/pwned)', 'file:///etc/passwd', `${url},*`, 'http://']
    for (const value of shell === 'ash' || process.env.SVCD_LONG ? values : values.slice(0, 1))
      t.match(
        await node.boot({ 'svc.urls': value }, failed),
        /FAILED in step arguments: the kernel argument svc\.urls=\S* is not a URL/,
        value
      )
    t.notOk(node.has('pwned') || node.has('ran'))
    t.strictSame(node.requests(), [])
  })
}
