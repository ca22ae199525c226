import t from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { base64, bmcBytes, installBmc, installData, installInterface } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { hostile } from './hostile.js'
import { completed, image, install } from './install.js'
import { shells } from './installing-node.js'

/** The node's data with every text hostile that does not steer the flow. */
function hostileData(): Partial<InstallData> {
  return {
    hostname: hostile,
    domain: hostile,
    group: hostile,
    comment: hostile,
    vendor: hostile,
    assettag: hostile,
    token: hostile.replaceAll(/[^ -~]/g, ''),
    osimage: hostile,
    osimagetag: hostile,
    distribution: hostile,
    kerneloptions: hostile,
    kernelfile: hostile,
    provision_method: hostile,
    provision_interface: hostile,
    ntp_server: hostile,
    rootpw: hostile,
    setupbmc: true,
    bmc: installBmc({
      username: hostile.slice(0, 16),
      password: hostile.slice(6, 26),
      ipaddress: hostile,
      netmask: hostile,
      gateway: hostile,
      ntp_server: hostile
    }),
    interfaces: [
      installInterface({
        interface: hostile,
        network: hostile,
        ipaddress: hostile,
        gateway: hostile,
        nameserver: hostile,
        domain: hostile,
        ntp_server: hostile,
        macaddress: hostile,
        options: hostile
      })
    ],
    secrets: [
      { name: hostile, path: `/etc/${hostile.replaceAll('/', '_').slice(0, 200)}`, content: base64(hostile) }
    ],
    postscript: base64(`cat > /postscript <<'XX'\n${hostile}\nXX\n`)
  }
}

for (const shell of shells) {
  // rules 4.15
  t.test(`hostile text stays text, ${shell}`, async t => {
    const node = hostile.slice(0, 150)
    const done = await install(t, {
      shell,
      data: { ...hostileData(), node },
      programs: {
        ipmitool: 'cat "$5" >> /ipmi',
        dmidecode: `cat <<'XX'\n${hostile.slice(0, 40)}\nXX`
      },
      environment: { SVC_BOOTPROTO: 'dhcp' },
      prepare: machine => machine.write('dev/ipmi0', '')
    })
    completed(t, done)
    const { controller, machine } = done
    t.notOk(machine.has('pwned'), 'nothing was run')
    t.notOk(machine.has('result/pwned'))
    t.equal(machine.text('postscript'), `${hostile}\n`)
    t.match(machine.text('ipmi'), `raw 6 69 3 ${bmcBytes(hostile, 16)}\n`, 'the user name as it is')
    t.match(machine.text('ipmi'), `raw 6 71 131 2 ${bmcBytes(hostile.slice(6), 20)}\n`)
    t.notMatch(machine.text('ipmi').trim(), /^(?!raw|user|channel|lan)|[^\w .:/%=\n-]/m, 'no other command')
    const kinds = new Set<string>()
    for (const { body, url } of controller.posts('/')) {
      const [, kind = '', name = ''] = /^\/\w+\/(node|inventory)\/(.+)$/.exec(url) ?? []
      t.equal(decodeURIComponent(name), node, url)
      JSON.parse(body)
      kinds.add(kind)
    }
    t.same([...kinds].sort(), ['inventory', 'node'], 'it reports its steps, and what it is made of')
    const { config } = JSON.parse(controller.posts('/config/')[1]?.body ?? '{}') as {
      config: { node: Record<string, { interfaces: { interface: string }[] }> }
    }
    t.equal(config.node[node]?.interfaces[0]?.interface, hostile)
    for (const file of ['etc/hostname', 'etc/resolv.conf', 'etc/hosts']) {
      t.notMatch(machine.read(file), /[^\w .:/%#\n-]|^touch/m, `${file} holds names and addresses only`)
    }
  })
}

t.test('the first lines stay a comment', async t => {
  const script = installScript(installData({ node: hostile, osimage: hostile }))
  const head = script.slice(0, script.indexOf('set +e'))
  t.ok(head.split('\n').every(line => line === '' || line.startsWith('#')))
})

t.test('a hostile image name reaches only the URL', async t => {
  const imagefile = `${hostile.replaceAll('/', '_').replace('\0', '')}.tar.gz`
  const done = await install(t, {
    shell: 'ash',
    data: { imagefile },
    prepare: (_, controller) => {
      const url = [...Buffer.from(imagefile)].map(byte => {
        const character = String.fromCharCode(byte)
        return /[A-Za-z0-9.-]/.test(character)
          ? character
          : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
      })
      controller.files.set(`/files/${url.join('')}`, image)
    }
  })
  completed(t, done)
  t.notOk(done.machine.has('pwned'))
})
