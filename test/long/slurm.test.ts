import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Bmc } from '../support/bmc.js'
import { start } from '../support/child.js'
import { Daemon } from '../support/daemon.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, systemOptions } from './debian-image.js'

// rules 12.11: Slurm restarts a virtual machine through svcd and the machine's BMC; svcd installs it anew, and
// its slurmd comes back to Slurm. Some ten minutes.

const [mac, ipaddress, bmcAddress] = ['52:54:00:14:0e:01', '10.141.0.11', '127.148.0.1']
const minutes = 60_000

/** It waits for its controller, which starts later. */
const unit =
  '[Service]\nRestart=always\nRestartSec=5\nStandardOutput=journal+console\nStandardError=inherit\n' +
  '[Unit]\nStartLimitIntervalSec=0\n'

/** The lines of slurm.conf that the controller and the machine share. */
const shared = {
  ...{ ClusterName: 'c', SlurmctldHost: 'localhost(10.141.0.1)', SlurmUser: 'root', SlurmdUser: 'root' },
  ...{ AuthType: 'auth/none', CredType: 'cred/none', MpiDefault: 'none', MailProg: '/bin/true' },
  ...{ ProctrackType: 'proctrack/linuxproc', TaskPlugin: 'task/none', GresTypes: 'gpu' }
}
const textOf = (lines: Readonly<Record<string, string | number>>) =>
  Object.entries(lines)
    .map(([key, value]) => `${key}=${value}\n`)
    .join('')

t.setTimeout(90 * minutes)

t.test('Slurm has a machine restarted, svcd installs it anew, and it works for Slurm again', async t => {
  requirePrograms('debootstrap', 'zstd', 'slurmctld', 'scontrol', 'ipmi_sim')
  const directory = scratch(t)
  const file = (name: string) => join(directory, name)
  const network = await startNetwork([{ mac, ipaddress }])
  t.teardown(() => network.close())
  const { enter } = network
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter })
  t.teardown(() => controller.stop())
  const image = await debianImage({
    ...{ tool: 'initramfs-tools', files: file('files'), tree: file('tree'), packages: ['slurmd', 'dbus'] },
    async prepare(tree) {
      mkdirSync(join(tree, 'etc/systemd/system/slurmd.service.d'), { recursive: true })
      writeFileSync(join(tree, 'etc/systemd/system/slurmd.service.d/svcd.conf'), unit)
      const node = 'NodeName=node001 NodeAddr=10.141.0.11 CPUs=1\nPartitionName=all Nodes=ALL\n'
      writeFileSync(join(tree, 'etc/slurm/slurm.conf'), `${textOf(shared)}${node}`)
      writeFileSync(join(tree, 'etc/slurm/cgroup.conf'), 'IgnoreSystemdOnFailure=yes\n')
    }
  })
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('network', 'ipmi', { network: '127.148.0.0/16' })
  await controller.create('bmcsetup', 'boards', { username: 'admin', password: 'secret' })
  const options = { distribution: 'debian', kerneloptions: systemOptions }
  await controller.create('osimage', 'debian', { ...image, ...options })
  const interfaces = [
    { interface: 'BOOTIF', network: 'cluster', ipaddress },
    { interface: 'BMC', network: 'ipmi', ipaddress: bmcAddress }
  ]
  const node = { osimage: 'debian', bmcsetupname: 'boards', setupbmc: false, macaddr: mac, interfaces }
  await controller.create('node', 'node001', node)
  const made = await controller.request('POST', '/config/token/slurm', { role: 'operator' })
  writeFileSync(file('token'), `${(made.body as { token: string }).token}\n`, { mode: 0o600 })
  const settings = `SVCD_URL=http://10.141.0.1:7050\nSVCD_TOKEN_FILE=${file('token')}\n`
  writeFileSync(file('export.conf'), settings)

  const env = { ...process.env, SVCD_EXPORT_CONF: file('export.conf'), SLURM_CONF: file('slurm.conf') }
  const script = (name: string) => join(checkout, 'libexec', name)
  writeFileSync(file('hosts'), `127.0.0.1 localhost\n${ipaddress} node001\n`)
  const inside = `mount --bind ${file('hosts')} /etc/hosts && exec "$@"`
  const child = (...words: string[]) => {
    const [program = '', ...args] = [...enter, 'unshare', '--mount', 'sh', '-euc', inside, 'sh', ...words]
    return start(program, args, { input: '', env })
  }
  const run = async (...words: string[]) => {
    const { ended, output } = child(...words)
    const { code } = await ended
    if (code !== 0) throw new Error(`${words.join(' ')}: ${code} ${output()}`)
    return output()
  }

  // The machine is on while its BMC says so.
  const bmc = await Bmc.start(t, bmcAddress, { port: 623, enter })
  const consoles: string[] = []
  let isOver = false
  const machine = async () => {
    while (!isOver) {
      await until(
        () => isOver || bmc.isOn,
        () => 'the machine is off',
        30 * minutes
      )
      if (isOver) return
      const off = new AbortController()
      const lines: string[] = []
      consoles.push('')
      const watch = setInterval(() => (isOver || !bmc.isOn) && off.abort(), 200)
      await runMachine({
        ...{ name: 'node001', mac, network: { tap: network.tap(mac) }, enter, signal: off.signal },
        ...{ memoryMiB: 2048, timeLimitMs: 60 * minutes, onLine: line => lines.push(line) }
      }).catch((error: Error) => off.signal.aborted || consoles.push(`${error}`))
      clearInterval(watch)
      consoles[consoles.length - 1] = lines.join('\n')
    }
  }
  bmc.isOn = true
  const running = machine()
  t.teardown(async () => {
    isOver = true
    await running
  })

  const states = async () => (await controller.request('GET', '/monitor/node/node001')).body
  const isReported = async () => {
    await run(script('svcd-export'), 'slurm', file('nodes.conf')).catch(() => undefined)
    return readFileSync(file('nodes.conf'), 'utf8').includes('NodeName=node001')
  }
  writeFileSync(file('nodes.conf'), '')
  await until(isReported, states, 30 * minutes)
  const conf = {
    ...shared,
    ...{ StateSaveLocation: file('slurm-state'), SlurmctldPidFile: file('pid'), ReturnToService: 2 },
    ...{ SlurmctldParameters: 'reboot_from_controller', ResumeTimeout: 3600, SlurmdTimeout: 60 },
    ...{ RebootProgram: file('reboot'), DebugFlags: 'NO_CONF_HASH' }
  }
  const reboot = `#!/bin/sh\nSVCD_EXPORT_CONF=${file('export.conf')} exec ${script('svcd-reboot')} "$@"\n`
  writeFileSync(file('reboot'), reboot, { mode: 0o755 })
  mkdirSync(file('slurm-state'))
  const nodes = `Include ${file('nodes.conf')}\nPartitionName=all Nodes=ALL Default=YES\n`
  writeFileSync(file('slurm.conf'), `${textOf(conf)}${nodes}`)
  const slurmctld = child('slurmctld', '-D')
  t.teardown(() => slurmctld.kill())
  await slurmctld.says(/Running as primary controller/)
  const told = () => run('scontrol', 'show', 'node', 'node001')
  const stateOf = async () => /State=(\S+)/.exec(await told())?.[1]
  const about = async () => ({ slurm: await told(), node: await states(), log: tail(slurmctld.output()) })
  await until(async () => (await stateOf()) === 'IDLE', about, 30 * minutes)
  const bootTime = async () => /BootTime=(\S+)/.exec(await told())?.[1]
  const before = await bootTime()

  await run('scontrol', 'reboot', 'ASAP', 'nextstate=RESUME', 'node001')
  await until(() => consoles.length === 2, about, 10 * minutes)
  await until(async () => (await stateOf()) === 'IDLE' && (await bootTime()) !== before, about, 40 * minutes)
  t.match(bmc.told.join(), /power 0.*power 1/, 'its BMC was told so')
  isOver = true
  await running
  t.match(consoles[1], /svc: running the install script of node001[\s\S]*node001 is ready/, 'installed anew')
  t.equal(consoles.length, 2, 'once')
})
