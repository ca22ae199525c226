import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'
import { ExportCluster, formats, hostile, script } from './cluster.js'

requirePrograms('ansible', 'ansible-inventory', 'nodeset', 'clush', 'nodeattr', 'ssh-keygen')
const site = await ExportCluster.start(t)
const { c } = site

// rules 12.11
t.test('Ansible reads the inventory, and runs no text of it as a template', async t => {
  const inventory = script('svcd-ansible')
  const { _meta, all, ...groups } = JSON.parse(await site.run(inventory, '--list'))
  t.strictSame(Object.keys(_meta.hostvars).sort(), ['gpu1', 'gpu2', 'node001', 'node002', 'node003'])
  t.strictSame(groups.compute.hosts, ['node001', 'node002', 'node003'])
  t.ok(all.hosts.length === 5 && Object.keys(groups).every(name => /^[A-Za-z_]\w*$/.test(name)))
  t.strictSame(JSON.parse(await site.run(inventory, '--host', 'gpu1')), _meta.hostvars.gpu1)
  t.strictSame(_meta.hostvars.gpu1.ansible_host, '127.141.0.4')
  const graph = await site.run('ansible-inventory', '-i', inventory, '--graph')
  t.match(graph, /@compute:\n {2}\| {2}\|--node001\n {2}\| {2}\|--node002\n {2}\| {2}\|--node003\n/)
  t.match(graph, /@state_installer_completed:/)
  t.match(graph, /@gpu_a:\n {2}\| {2}\|--gpu2\n/, 'a name that Ansible takes stays')
  t.match(graph, /@gpu_a_[0-9a-f]{8}:\n {2}\| {2}\|--gpu1\n/, 'one that becomes the same gets another')
  t.match(graph, /@rack_r_1_[0-9a-f]{8}:\n {2}\| {2}\|--gpu[12]\n/)
  const renamed = Object.entries<string>(all.vars.svcd_groups_renamed)
  t.ok(renamed.some(([name, original]) => name.startsWith('gpu_a_') && original === 'gpu-a'))
  const play = {
    ...{ hosts: 'node002:node003', connection: 'local', gather_facts: false },
    vars: { seen: '{{ [svcd_state, svcd_rack] }}', file: site.at('seen.') },
    tasks: [{ copy: { content: '{{ seen | to_json }}', dest: '{{ file + inventory_hostname }}' } }]
  }
  writeFileSync(site.at('play.yml'), JSON.stringify([play]))
  await site.run('ansible-playbook', '-i', inventory, site.at('play.yml'))
  const seen = (node: string) => JSON.parse(readFileSync(site.at(`seen.${node}`), 'utf8'))
  t.strictSame([seen('node002')[1], seen('node003')[0]], [hostile, hostile])
})

// rules 12.11
t.test('ClusterShell has a group source', async t => {
  mkdirSync(site.at('groups.d'), { recursive: true })
  writeFileSync(site.at('groups.conf'), `[Main]\ndefault: svcd\nautodir: ${site.at('groups.d')}\n`)
  Object.assign(site.env, { CLUSTERSHELL_CFGDIR: site.directory })
  await site.run(script('svcd-export'), 'clustershell', site.at('groups.d/svcd.yaml'))
  t.equal(await site.run('nodeset', '-f', '@svcd:compute'), 'node[001-003]\n')
  t.equal(await site.run('nodeset', '-f', '@svcd:rack=r1'), 'node[001,003]\n')
  t.equal(await site.run('nodeset', '-f', '-a'), 'gpu[1-2],node[001-003]\n', 'all')
  const list = (await site.run('nodeset', '-ll', '-s', 'svcd')).trim().split('\n')
  t.match(list[0], '@svcd:all gpu[1-2],node[001-003]')
  t.ok(list.includes('@svcd:rack=r_1 gpu1') && list.includes('@svcd:rack=r-1 gpu2'))
  const own = await site.run('nodeset', '-l', '-s', 'svcd', 'node001')
  t.match(own, '@svcd:compute\n@svcd:osimage=compute\n@svcd:rack=r1\n@svcd:state=installer.completed\n')
  const said = await site.run('clush', '-w', '@svcd:compute', '-R', 'exec', '-b', 'echo', 'here')
  t.match(said, 'node[001-003] (3)\n---------------\nhere\n')
})

// rules 12.11
t.test('genders has attributes', async t => {
  const file = await site.file('genders')
  t.equal((await site.try('nodeattr', '-f', file, '-k')).stderr, 'nodeattr: 0 parse errors discovered\n')
  t.equal(await site.run('nodeattr', '-f', file, '-q', 'group=compute'), 'node[001-003]\n')
  t.equal(await site.run('nodeattr', '-f', file, '-q', 'role_login'), 'gpu2\n')
  t.equal(await site.run('nodeattr', '-f', file, '-q', 'all'), 'gpu[1-2],node[001-003]\n')
})

// rules 12.11
t.test('the topology of Slurm has the nodes alone that Slurm is told of', async t => {
  const [told, topology] = ['slurm', 'slurm-topology'].map(one => site.c.get(`/config/export/${one}`))
  t.match(
    (await told)?.text,
    /^# no hardware reported yet, or more than Slurm can count, left out: node002$/m
  )
  t.match(
    (await topology)?.text,
    /^SwitchName=sw1 Nodes=node001$[\s\S]*^# no hardware reported yet, or more than Slurm can count, left out: node002$/m
  )
})

// rules 12.11
t.test('a hostile text is a word of its own line in every format', async t => {
  const lines: Readonly<Record<string, RegExp>> = {
    clustershell: /^(?:svcd:| {2}"[\w.=-]+": "[\w[\],-]+")$/,
    genders: /^\w+ all(?:,\w+(?:=[\w.-]+)?)*$/,
    hosts: /^[\d.]+(?: [a-z\d.-]+)+$/,
    'known-hosts': /^$/,
    slurm: /^NodeName=[\w[\],-]+(?: \w+=[\w:,]+)+ State=UNKNOWN$/,
    'slurm-topology': /^SwitchName=[\w-]+ (?:Nodes|Switches)=[\w[\],-]+$/,
    conman: /^console name="\w+" dev="ipmi:[\d.]+" ipmiopts="U:admin,C:3,L:admin"$/,
    powerman:
      /^(?:include "[\w/.]+"|device "[\w-]+" "ipmipower" "[\w/ .=,-]+ \|&"|node "\w+" "[\w-]+" "[\d.]+")$/
  }
  for (const format of formats) {
    const { status, text, headers } = await c.get(`/config/export/${format}`)
    t.equal(status, 200, format)
    t.notMatch(text, 'secret')
    const line = lines[format]
    if (!line) {
      t.ok(JSON.parse(text) && headers['content-type'] === 'application/json', format)
      continue
    }
    t.equal(headers['content-type'], 'text/plain; charset=utf-8', format)
    const wrong = text.split('\n').filter(one => one !== '' && !one.startsWith('# ') && !line.test(one))
    t.strictSame(wrong, [], format)
    const comments = text.split('\n').filter(one => one.startsWith('#'))
    for (const comment of comments) t.match(comment, /^# [\x20-\x7e]*$/)
  }
})

// rules 12.11
t.test('a set limits an export, and what is wrong is refused before a byte is sent', async t => {
  const only = await c.get('/config/export/genders?nodes=@gpu-a,node003')
  t.match(only.text, /^# [^\n]*\ngpu1 [^\n]*\nnode003 [^\n]*\n$/)
  t.notMatch((await c.get('/config/export/hosts?nodes=gpu1')).text, 'sw1')
  t.match((await c.get('/config/export/hosts')).text, '127.141.0.99 sw1.cluster sw1\n')
  const rows: [path: string, status: number, says: RegExp][] = [
    ['nothing', 404, /^there is no export nothing: there is ansible, clustershell, /],
    ['genders?nodes=gpu9', 404, /^node gpu9 does not exist/],
    ['genders?nodes=gpu[1-', 400, /./],
    ['prometheus?port=0', 400, /^export prometheus: query key "port" must be a number from 1 to 65535$/],
    ['prometheus?port=65536', 400, /65535/],
    ['slurm?port=9100', 400, /^export slurm: query key "port" belongs to prometheus$/],
    ['ansible?host=gpu9', 404, /^ansible: there is no node "gpu9"$/],
    ['hosts?colour=red', 400, /"colour" is not known/]
  ]
  for (const [path, status, says] of rows)
    t.match(await c.get(`/config/export/${path}`), { status, body: { message: says } }, path)
  t.match(JSON.parse((await c.get('/config/export/prometheus?nodes=gpu1&port=9101')).text), [
    { targets: ['127.141.0.4:9101'], labels: { node: 'gpu1', group: 'gpu-a', rack: 'r 1' } }
  ])
  t.strictSame(JSON.parse((await c.get('/config/export/prometheus?nodes=node001!node001')).text), [])
})

// rules 12.11
t.test('svcd-export replaces a file as a whole, only if it differs, and keeps it on a failure', async t => {
  const file = site.at('kept')
  const keep = (...words: string[]) => site.try(script('svcd-export'), ...words)
  const touch = ['touch', site.at('reloaded')]
  t.equal((await keep('genders', file, ...touch)).stdout, `${file}: changed\n`)
  await site.run('rm', site.at('reloaded'))
  t.equal((await keep('genders', file, ...touch)).stdout, `${file}: unchanged\n`)
  t.not((await site.try('test', '-e', site.at('reloaded'))).status, 0, 'and runs nothing')
  const before = readFileSync(file, 'utf8')
  t.match(await keep('--nodes', 'gpu9', 'genders', file, ...touch), {
    status: 1,
    stderr: /^svcd-export: svcd refuses \(404\): .*node gpu9 does not exist/
  })
  t.equal(readFileSync(file, 'utf8'), before)
  const { SVCD_URL: url } = site.env
  site.env.SVCD_URL = 'http://127.0.0.1:9'
  t.match(await keep('genders', file), {
    status: 1,
    stderr: /svcd-export: http:\/\/127\.0\.0\.1:9 does not answer/
  })
  site.env.SVCD_URL = url
  await site.run('chmod', '0640', site.at('token'))
  t.match(await keep('genders', file), { status: 1, stderr: /may be read by others: type chmod 0600/ })
  await site.run('chmod', '0600', site.at('token'))
  t.match(await keep('genders', file, 'false'), { status: 0 })
  await site.run('chmod', '0640', file)
  t.match(await keep('--nodes', 'gpu1', 'genders', file, 'false'), { status: 1, stdout: /changed/ })
  t.equal(await site.run('stat', '-c', '%a', file), '640\n', 'the mode stays')
  t.match(await keep('--nodes', 'gpu1', 'genders', file, ...touch), { status: 0, stdout: /unchanged/ })
  await site.run('rm', site.at('reloaded'))
  await keep('--nodes', 'gpu1', 'genders', file, ...touch)
  t.not((await site.try('test', '-e', site.at('reloaded'))).status, 0, 'a failed command is run once more')
  writeFileSync(site.at('head'), 'secret\n', { mode: 0o600 })
  await keep('--head', site.at('head'), 'conman', site.at('conman'))
  t.match(readFileSync(site.at('conman'), 'utf8'), /^secret\n# Written/)
  t.equal(await site.run('stat', '-c', '%a', site.at('conman')), '600\n')
  t.equal(await site.run('find', site.directory, '-name', 'kept.*'), '', 'nothing is left')
})

// rules 12.11
t.test('svcd-export writes passwords into files of its own alone, and removes no others', async t => {
  // Somebody else sees the name of the new file in a directory for all, and puts one beside it.
  const real = (await site.run('sh', '-c', 'command -v mktemp')).trim()
  mkdirSync(site.at('bin'), { recursive: true })
  const spy = `#!/bin/sh\nmade=$(${real} "$@") || exit\n: >> "$made.head"\nchmod 666 "$made.head"\n`
  writeFileSync(site.at('bin/mktemp'), `${spy}ln "$made.head" ${site.at('spied')}.$$\necho "$made"\n`, {
    mode: 0o755
  })
  writeFileSync(site.at('secret'), 'secret\n', { mode: 0o600 })
  const { PATH } = site.env
  site.env.PATH = `${site.at('bin')}:${PATH}`
  const args = ['--head', site.at('secret'), 'conman', site.at('conman2')]
  t.match(await site.try(script('svcd-export'), ...args), { status: 0 })
  site.env.PATH = PATH
  t.match(readFileSync(site.at('conman2'), 'utf8'), /^secret\n# Written/)
  t.equal(await site.run('sh', '-c', `cat ${site.at('spied')}.*`), '')
  writeFileSync(site.at('.head'), 'mine')
  t.match(await site.try(script('svcd-export'), 'genders', site.at('none/of/it')), { status: 1 })
  t.equal(readFileSync(site.at('.head'), 'utf8'), 'mine')
})

// rules 12.11
t.test('svcctl prints an export', async t => {
  const env = Object.entries(svcctlFor(scratch(t), c)).map(([name, value]) => `${name}=${value}`)
  const said = await site.run('env', ...env, 'svcctl', 'export', 'genders', '@gpu-a')
  t.equal(said, (await c.get('/config/export/genders?nodes=@gpu-a')).text)
  const wrong = await site.try('env', ...env, 'svcctl', 'export', 'gender')
  t.match(wrong, { status: 1, stderr: /^svcctl: there is no export gender: there is ansible, / })
})

// rules 12.11
t.test('names that a program writes alike do not become one', async t => {
  for (const [name, rack] of [
    ['gpu1', 'r 1'],
    ['gpu2', 'r_1']
  ])
    await c.post(`/config/node/${name}`, { variables: { rack }, switch: null })
  const genders = (await c.get('/config/export/genders?nodes=gpu[1-2]')).text
  t.match(genders, /gpu1 .*rack=r_1_[\da-f]{8},.*\ngpu2 .*rack=r_1[,\n]/)
  const leaves = async () => (await c.get('/config/export/slurm-topology?nodes=gpu[1-2]')).text
  t.match(
    await leaves(),
    /SwitchName=rack_r_1_[\da-f]{8} Nodes=gpu1\nSwitchName=rack_r_1_[\da-f]{8} Nodes=gpu2\n/
  )
  await c.post('/config/node/gpu1', { switch: 'svcd-top' })
  t.match(await leaves(), /SwitchName=svcd-top_[\da-f]{8} Nodes=gpu1\n/)
})
