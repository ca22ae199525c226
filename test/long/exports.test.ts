import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { Daemon } from '../support/daemon.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, systemOptions } from './debian-image.js'

// rules 12.11: Ansible plays over two virtual machines that svcd has booted, by its inventory and its host
// keys, and ends them. Some five minutes.

const macs = ['52:54:00:14:0d:01', '52:54:00:14:0d:02']
const at = (i: number) => `10.141.0.1${i + 1}`

const play = `- hosts: compute
  tasks:
    - command: hostname
      register: said
    - debug: {msg: "{{ inventory_hostname }} is {{ said.stdout }} {{ ansible_default_ipv4.macaddress }}"}
    - command: systemctl --no-block poweroff
`

t.setTimeout(3_600_000)

t.test('Ansible reaches machines that svcd has booted, and ssh asks nothing', async t => {
  requirePrograms('debootstrap', 'zstd', 'ansible-playbook', 'ssh-keygen')
  const directory = scratch(t)
  const file = (name: string) => join(directory, name)
  const network = await startNetwork(macs.map((mac, i) => ({ mac, ipaddress: at(i) })))
  t.teardown(() => network.close())
  const { enter } = network
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter })
  t.teardown(() => controller.stop())
  await start('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', file('key')], { input: '' }).ended
  const image = await debianImage({
    ...{ tool: 'initramfs-tools', files: file('files'), tree: file('tree'), packages: ['python3'] },
    async prepare(tree) {
      await mkdir(join(tree, 'root/.ssh'), { recursive: true, mode: 0o700 })
      await writeFile(join(tree, 'root/.ssh/authorized_keys'), await readFile(file('key.pub')))
      await chmod(join(tree, 'root/.ssh/authorized_keys'), 0o600)
    }
  })
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('osimage', 'debian', {
    ...image,
    distribution: 'debian',
    kerneloptions: systemOptions
  })
  await controller.create('group', 'compute', {
    osimage: 'debian',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  for (const [i, macaddr] of macs.entries()) {
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress: at(i) }]
    await controller.create('node', `node00${i + 1}`, { group: 'compute', macaddr, interfaces })
  }
  const made = await controller.request('POST', '/config/token/ansible', { role: 'viewer' })
  await writeFile(file('token'), `${(made.body as { token: string }).token}\n`, { mode: 0o600 })
  await writeFile(file('play.yml'), play)
  const env = {
    ...{ PATH: process.env.PATH ?? '', HOME: directory, SVCD_URL: 'http://10.141.0.1:7050' },
    ...{ SVCD_TOKEN_FILE: file('token'), ANSIBLE_REMOTE_USER: 'root', ANSIBLE_PRIVATE_KEY_FILE: file('key') },
    ANSIBLE_SSH_COMMON_ARGS: `-o UserKnownHostsFile=${file('known')} -o GlobalKnownHostsFile=none`
  }
  const run = async (...words: string[]) => {
    const [program = '', ...args] = [...enter, ...words]
    const child = start(program, args, { input: '', env })
    return { ...(await child.ended), all: child.output() }
  }
  const script = (name: string) => join(checkout, 'libexec', name)

  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const upAndOff = macs.map((mac, i) => {
    let up = () => {}
    const isUp = new Promise<void>(resolve => {
      up = resolve
    })
    const off = runMachine({
      ...{ name: `node00${i + 1}`, mac, network: { tap: network.tap(mac) }, enter, signal: stop.signal },
      ...{ memoryMiB: 2048, timeLimitMs: 1_800_000, onLine: line => /REPORT done/.test(line) && up() }
    })
    return { up: Promise.race([isUp, off]), off }
  })
  await Promise.all(upAndOff.map(({ up }) => up))
  // The system of a machine reports its host keys with its inventory.
  await until(async () => {
    await run(script('svcd-export'), 'known-hosts', file('known'))
    return (await readFile(file('known'), 'utf8').catch(() => '')).split('ssh-ed25519').length > 2
  }, 'the host keys of both')
  const played = await run('ansible-playbook', '-i', script('svcd-ansible'), file('play.yml'))
  t.equal(played.code, 0, 'the play', { said: tail(played.all) })
  for (const [i, mac] of macs.entries())
    t.match(played.all, new RegExp(`node00${i + 1} is node00${i + 1}.cluster ${mac}`), 'it is that machine')
  for (const { exit } of await Promise.all(upAndOff.map(({ off }) => off)))
    t.equal(exit, 0, 'switched off by the play')
})
