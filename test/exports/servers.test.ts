import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { Bmc } from '../support/bmc.js'
import { issuer } from '../support/callers.js'
import { start } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { inventoryProgram } from '../support/install-script.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { until } from '../support/until.js'
import { ExportCluster, script } from './cluster.js'

// The real servers that read exports, with nodes on loopback.

requireRoot()
requirePrograms(
  'sshd',
  'ssh',
  'ansible',
  'slurmd',
  'slurmctld',
  'scontrol',
  'conmand',
  'powermand',
  'ipmipower'
)
const site = await ExportCluster.start(t)
const { c } = site
const two = ['node001', 'node002'] as const
const addresses = { node001: '127.141.0.1', node002: '127.141.0.2' } as const

/** Nodes report as their systems do: with this machine's hardware, and a host key of their own. */
for (const name of two) {
  const root = site.at(name)
  for (const path of ['etc/ssh', 'etc/svc']) mkdirSync(`${root}/${path}`, { recursive: true })
  for (const path of ['sys', 'proc']) symlinkSync(`/${path}`, `${root}/${path}`)
  await site.run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', `${root}/etc/ssh/ssh_host_ed25519_key`)
  const token = (await issuer(c)).issueNode(name, 0)
  writeFileSync(`${root}/etc/svc/inventory.conf`, `url ${site.env.SVCD_URL}\nnode ${name}\ntoken ${token}\n`)
  writeFileSync(site.at('inventory'), inventoryProgram())
  await site.run('sh', site.at('inventory'), '--root', root)
}
const hosts = await site.file('hosts')

/** The words that run a program where /etc/hosts is the export. */
const named = (...words: readonly string[]) => {
  const inside = `mount --bind ${hosts} /etc/hosts && exec "$@"`
  return ['unshare', '--mount', 'sh', '-euc', inside, 'sh', ...words]
}
const run = (...words: readonly string[]) => {
  const [program = '', ...args] = named(...words)
  return site.run(program, ...args)
}

async function serve(t: Test, words: readonly string[], says: RegExp): Promise<() => string> {
  const [program = '', ...args] = words
  const child = start(program, args, { input: '' })
  t.teardown(() => child.kill())
  await child.says(says)
  return () => child.output()
}

// rules 12.11
t.test('names resolve, ssh asks no question, and Ansible plays over two nodes', async t => {
  t.match(await run('getent', 'hosts', 'node001'), /^127\.141\.0\.1 +node001\.cluster node001\n$/)
  t.match(await run('getent', 'hosts', '127.141.0.99'), /sw1\.cluster sw1\n$/)
  await site.run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', site.at('key'))
  const known = await site.file('known-hosts')
  for (const name of two) {
    const options = {
      ...{ ListenAddress: addresses[name], PidFile: 'none', StrictModes: 'no', UsePAM: 'no' },
      AuthorizedKeysFile: site.at('key.pub'),
      HostKey: `${site.at(name)}/etc/ssh/ssh_host_ed25519_key`
    }
    const words = Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`])
    const inside = 'mount -t tmpfs run /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f /dev/null "$@"'
    await serve(t, ['unshare', '--mount', 'sh', '-euc', inside, 'sh', ...words], /Server listening/)
  }
  const options = ['-F', 'none', '-i', site.at('key'), '-o', `UserKnownHostsFile=${known}`]
  options.push('-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=yes', '-o', 'GlobalKnownHostsFile=none')
  for (const name of ['node001', 'node002.cluster', '127.141.0.2'])
    t.match(await run('ssh', ...options, `root@${name}`, 'echo', '$SSH_CONNECTION'), / 127\.141\.0\.\d 22\n$/)
  // A key that moved to another machine is noticed.
  const lines = readFileSync(known, 'utf8')
  const [[first = '', second = ''] = []] = [lines.match(/(?<= )AAAA\S+/g) ?? []]
  writeFileSync(known, lines.replace(first, second))
  await t.rejects(run('ssh', ...options, 'root@node001', 'true'), /IDENTIFICATION HAS CHANGED/)
  writeFileSync(known, lines)
  Object.assign(site.env, { ANSIBLE_SSH_ARGS: options.join(' '), ANSIBLE_REMOTE_USER: 'root' })
  const play = [
    {
      ...{ hosts: 'compute:!node003', gather_facts: false },
      tasks: [{ raw: 'echo at $SSH_CONNECTION', register: 'said' }, { debug: { var: 'said.stdout' } }]
    }
  ]
  writeFileSync(site.at('play.yml'), JSON.stringify(play))
  const told = await site.run('ansible-playbook', '-i', script('svcd-ansible'), site.at('play.yml'))
  t.match(told, /ok: \[node001\] => \{\s+"said.stdout": "at [\d. ]+ 127\.141\.0\.1 22/)
  t.match(told, /ok: \[node002\] => \{\s+"said.stdout": "at [\d. ]+ 127\.141\.0\.2 22/)
})

const parameters = (line: string) =>
  Object.fromEntries([...line.matchAll(/(\w+)=(\S+)/g)].map(([, key = '', value = '']) => [key, value]))

// rules 12.11
t.test('Slurm takes the nodes and the topology, and restarts a node through svcd', async t => {
  const nodes = await site.file('slurm')
  await site.file('slurm-topology')
  const ours = parameters(/^NodeName=node\[001-002\].*$/m.exec(readFileSync(nodes, 'utf8'))?.[0] ?? '')
  const theirs = parameters((await site.run('slurmd', '-C')).split('\n', 1)[0] ?? '')
  for (const key of ['CPUs', 'Boards', 'SocketsPerBoard', 'CoresPerSocket', 'ThreadsPerCore'])
    t.equal(ours[key], theirs[key], `${key} as slurmd -C tells it`)
  const [memory, real] = [Number(ours.RealMemory), Number(theirs.RealMemory)]
  t.ok(memory <= real && memory > 0.97 * real, `RealMemory ${memory} of ${real}`)

  const bmc = await Bmc.start(t, '127.148.0.1', { port: 623 })
  bmc.isOn = true
  const [port, nodePort] = [await freePort(), await freePort()]
  // slurmctld gives its programs an environment of their own.
  const settings = ['SVCD_URL', 'SVCD_TOKEN_FILE'].map(name => `${name}=${site.env[name]}`)
  writeFileSync(site.at('export.conf'), `${settings.join('\n')}\n`)
  const reboot = `#!/bin/sh\nSVCD_EXPORT_CONF=${site.at('export.conf')} exec ${script('svcd-reboot')} "$@"\n`
  writeFileSync(site.at('reboot'), reboot, { mode: 0o755 })
  writeFileSync(site.at('topology.conf'), readFileSync(site.at('slurm-topology')))
  const conf = {
    ...{ ClusterName: 'c', SlurmctldHost: 'localhost(127.0.0.1)', SlurmUser: 'root', SlurmdUser: 'root' },
    ...{ AuthType: 'auth/none', CredType: 'cred/none', MpiDefault: 'none', MailProg: '/bin/true' },
    ...{
      StateSaveLocation: site.at('state'),
      SlurmctldPidFile: site.at('pid'),
      SlurmdPidFile: site.at('pid.%n')
    },
    ...{ SlurmdSpoolDir: site.at('spool.%n'), SlurmctldPort: port, SlurmdPort: nodePort, GresTypes: 'gpu' },
    ...{ ProctrackType: 'proctrack/linuxproc', TaskPlugin: 'task/none', TopologyPlugin: 'topology/tree' },
    ...{ CommunicationParameters: 'NoInAddrAny', SlurmctldParameters: 'reboot_from_controller' },
    ...{ RebootProgram: site.at('reboot'), ReturnToService: 2, ResumeTimeout: 600 }
  }
  const lines = Object.entries(conf).map(([key, value]) => `${key}=${value}`)
  lines.push(`Include ${nodes}`, 'PartitionName=all Nodes=ALL Default=YES')
  writeFileSync(site.at('slurm.conf'), `${lines.join('\n')}\n`)
  mkdirSync(site.at('state'))
  Object.assign(site.env, { SLURM_CONF: site.at('slurm.conf') })
  const child = ['env', `SLURM_CONF=${site.at('slurm.conf')}`]
  await serve(t, named(...child, 'slurmctld', '-D'), /Running as primary controller/)
  // It listens at the address of its host name.
  const slurmd = ['sh', '-euc', 'hostname node001 && exec "$@"', 'sh', ...child, 'slurmd', '-D']
  await serve(t, ['unshare', '--uts', ...named(...slurmd)], /slurmd started/)
  const state = async () => /State=(\S+)/.exec(await run('scontrol', 'show', 'node', 'node001'))?.[1]
  await until(async () => (await state()) === 'IDLE', state)
  const gpu = await run('scontrol', 'show', 'node', 'gpu1')
  t.match(gpu, /Gres=gpu:4/)
  t.match(gpu, /AvailableFeatures=a100,nvlink/)
  t.match(gpu, /CoresPerSocket=32[\s\S]*CPUTot=128[\s\S]*RealMemory=250880/)
  const topology = await run('scontrol', 'show', 'topology')
  t.match(topology, /SwitchName=sw1 Level=0 .*Nodes=node\[001-002\]/)
  t.match(topology, /SwitchName=svcd-top Level=1 .*Switches=/)
  bmc.forget()
  await run('scontrol', 'reboot', 'ASAP', 'nextstate=RESUME', 'node001')
  await until(
    () => bmc.told.join().includes('power 0') && bmc.isOn,
    () => ({ told: bmc.told })
  )
  t.match(await state(), /REBOOT/, 'Slurm waits for its slurmd')
})

// rules 12.11
t.test('svcd-reboot has a node installed anew, and tells what failed', async t => {
  const bmc = await Bmc.start(t, '127.148.0.2', { port: 623 })
  t.match(await site.try(script('svcd-reboot'), 'node00[2]', 'other,svcd-reinstall'), {
    status: 0,
    stderr: ''
  })
  t.ok(bmc.isOn)
  t.match((await c.get('/config/node/node002')).body.config.node.node002, {
    netboot: true,
    netboot_once: true
  })
  t.match((await c.get('/config/node/node001')).body.config.node.node001, { netboot_once: false })
  t.match(await site.try(script('svcd-reboot'), 'gpu1'), {
    status: 1,
    stderr: /^svcd-reboot: not restarted: "gpu1":"node gpu1 has no interface BMC/
  })
  t.match(await site.try(script('svcd-reboot'), 'node9'), { status: 1, stderr: /node node9 does not exist/ })
  t.match(await site.try(script('svcd-reboot'), 'a"b'), { status: 1, stderr: /usage/ })
})

// rules 12.11
t.test('conmand and powermand reach the BMCs with passwords that svcd does not tell', async t => {
  const bmcs = await Promise.all([1, 2, 3].map(n => Bmc.start(t, `127.148.0.${n}`, { port: 623 })))
  for (const [i, bmc] of bmcs.entries()) bmc.isOn = i !== 1
  const [port, powerPort] = [await freePort(), await freePort()]
  const head = `server port=${port}\nserver loopback=on\nglobal ipmiopts="P:secret"\n`
  writeFileSync(site.at('conman.head'), head, { mode: 0o600 })
  const conman = await site.file('conman', '--head', site.at('conman.head'))
  const log = await serve(t, ['conmand', '-F', '-c', conman], /SOL engine started/)
  t.equal(await site.run('conman', '-d', `127.0.0.1:${port}`, '-q'), 'node001\nnode002\nnode003\n')
  t.notMatch(log(), /ERROR|unrecognized|invalid/i)

  writeFileSync(site.at('powerman.head'), `listen "127.0.0.1:${powerPort}"\n`)
  const powerman = await site.file('powerman', '--head', site.at('powerman.head'))
  t.notMatch(readFileSync(powerman, 'utf8'), 'secret')
  writeFileSync(site.at('bmc.conf'), 'username admin\npassword secret\nworkaround-flags opensesspriv\n', {
    mode: 0o600
  })
  const inside = `mount -t tmpfs x /mnt && cp -a /etc/powerman/. /mnt && mount --bind /mnt /etc/powerman
cp ${site.at('bmc.conf')} /etc/powerman/svcd-boards.conf && exec powermand -f -c ${powerman}`
  await serve(t, ['unshare', '--mount', 'sh', '-euc', inside], /_pipe_connect/)
  const ask = (...words: string[]) => site.try('powerman', '-h', `127.0.0.1:${powerPort}`, ...words)
  const expected = 'on:      node[001,003]\noff:     node002\nunknown: \n'
  await until(
    async () => (await ask('-q')).stdout === expected,
    () => ask('-q')
  )
  t.match(await ask('--on', 'node002'), { stdout: /successfully/ })
  t.ok(bmcs[1]?.isOn)
})
