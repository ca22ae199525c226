import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { typedBelow } from '../support/page.js'
import { output } from '../support/programs.js'

const page = 'docs/moving.md'
const c = await Controller.start(t)
const programs = join(c.directory, 'programs')
mkdirSync(programs)

/** A program that prints what the system to move from would print. */
function program(name: string, prints: Readonly<Record<string, string>>): void {
  const cases = Object.entries(prints).map(([args, text]) => `'${args}') cat <<'END'\n${text}END\n;;\n`)
  writeFileSync(join(programs, name), `#!/bin/sh\ncase "$*" in\n${cases.join('')}*) exit 2 ;;\nesac\n`)
  chmodSync(join(programs, name), 0o755)
}

/** What the commands below a heading print, typed as they stand there. */
function typed(heading: string, replaced = '', by = ''): Promise<string> {
  const commands = typedBelow(page, heading).replaceAll('curl ', "curl -w '\\n' ")
  t.not(commands, '', heading)
  const script = `set -eu\nPATH=${programs}:$PATH\ncd ${c.directory}\n${replaced ? commands.replaceAll(replaced, by) : commands}`
  return output('env', [
    `auth=x-access-tokens: ${c.token}`,
    `url=http://127.0.0.1:${c.daemon.port}`,
    ...['sh', '-c', script]
  ])
}

/** Imports the table as the page says, and gives MAC and address of a node. */
async function imported(t: Test, node: string, nodes: number): Promise<unknown> {
  t.match(
    await typed('Import the table'),
    new RegExp(`"message":"${nodes} node${nodes === 1 ? '' : 's'} created, 0 changed"`)
  )
  const { body } = await c.get(`/config/node/${node}`)
  const { group, interfaces } = body.config.node[node]
  return [group, interfaces[0].interface, interfaces[0].macaddress, interfaces[0].ipaddress]
}

// rules 3.11, 12.8
t.test('networks, images and groups', async t => {
  const said = await typed('Networks, images and groups')
  t.match(said, /dry run, nothing was changed: [\s\S]*"imported: .*group: 1 created/)
  t.equal((await c.get('/config/group/compute')).body.config.group.compute.osimage, 'rocky')
})

t.test('a table of Warewulf', async t => {
  program('wwctl', {
    'node export': `w1:
  profiles:
    - default
  image name: rockylinux-9
  kernel:
    args:
      - quiet
  network devices:
    default:
      type: ethernet
      device: eno1
      hwaddr: "00:00:00:00:01:01"
      ipaddr: 10.141.1.1
      netmask: 255.255.0.0
      tags:
        DNS1: 1.1.1.1
    second:
      hwaddr: "00:00:00:00:01:ff"
      ipaddr: 10.142.1.1
w2:
  profiles:
    - compute
    - default
  network devices:
    default:
      ipaddr: 10.141.1.2
`
  })
  t.equal(
    await typed('Warewulf 4'),
    'name,group,BOOTIF.macaddress,BOOTIF.ipaddress\nw1,compute,00:00:00:00:01:01,10.141.1.1\nw2,compute,,10.141.1.2\n'
  )
  t.same(await imported(t, 'w1', 2), ['compute', 'BOOTIF', '00:00:00:00:01:01', '10.141.1.1'])
})

t.test('tables of xCAT', async t => {
  program('tabdump', {
    nodelist: `#node,groups,status,statustime,appstatus,appstatustime,primarysn,hidden,updatestatus,updatestatustime,zonename,comments,disable
"x1","all,compute",,,,,,,,,,,
"x2","compute,all",,,,,,,,,,"a rack, with a comma",
"x3","compute",,,,,,,,,,,"yes"
`,
    mac: `#node,interface,mac,comments,disable
"x1",,"00:00:00:00:02:01!x1|00:00:00:00:02:ff!x1-eth1",,
"x2","eth0","00:00:00:00:02:02",,
`,
    hosts: `#node,ip,hostnames,otherinterfaces,comments,disable
"x1","10.141.2.1",,,,
`
  })
  t.equal(
    await typed('xCAT'),
    'name,group,BOOTIF.macaddress,BOOTIF.ipaddress\nx1,compute,00:00:00:00:02:01,10.141.2.1\nx2,compute,00:00:00:00:02:02,\n'
  )
  t.same(await imported(t, 'x1', 2), ['compute', 'BOOTIF', '00:00:00:00:02:01', '10.141.2.1'])
})

t.test('a table of Confluent', async t => {
  program('nodeattrib', {
    'all groups net.hwaddr net.ipv4_address': `c1: groups: compute,everything
c1: net.hwaddr: 00:00:00:00:03:01
c1: net.ipv4_address: 10.141.3.1/16
c2: groups: everything,compute
c2: net.hwaddr: 00:00:00:00:03:02
c2: net.ipv4_address:
`
  })
  t.equal(
    await typed('Confluent'),
    'name,group,BOOTIF.macaddress,BOOTIF.ipaddress\nc1,compute,00:00:00:00:03:01,10.141.3.1\nc2,compute,00:00:00:00:03:02,\n'
  )
  t.same(await imported(t, 'c1', 2), ['compute', 'BOOTIF', '00:00:00:00:03:01', '10.141.3.1'])
})

t.test('a table of Cobbler', async t => {
  const systems = join(c.directory, 'systems')
  mkdirSync(systems)
  const system = {
    name: 'k1',
    profile: 'compute',
    interfaces: {
      bond0: { mac_address: '', ip_address: '' },
      eth0: { mac_address: '00:00:00:00:04:01', ip_address: '10.141.4.1' }
    }
  }
  writeFileSync(join(systems, 'k1.json'), JSON.stringify(system))
  t.equal(
    await typed('Cobbler', '/var/lib/cobbler/collections/systems', systems),
    'name,group,BOOTIF.macaddress,BOOTIF.ipaddress\n"k1","compute","00:00:00:00:04:01","10.141.4.1"\n'
  )
  t.same(await imported(t, 'k1', 1), ['compute', 'BOOTIF', '00:00:00:00:04:01', '10.141.4.1'])
})
