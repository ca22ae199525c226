import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { parsedYaml } from '../support/yaml.js'

const url = 'http://10.141.255.254:7050'
const mac = '52:54:00:00:00:01'
const source = '10.141.0.1'
const hash = '$6$salt$hash/with.dots'
const base64 = (text: string) => Buffer.from(text).toString('base64')
const own = { token: null, source }
const stranger = { token: null, source: '10.141.0.9' }

/** Node n1 with an installer's kernel and initramfs, and no packed image. */
async function started(test: Test, fields: object): Promise<Controller> {
  const c = await Controller.start(test, `kickstart.rootpw=${hash}`)
  await c.cluster()
  for (const name of ['di-linux', 'di-initrd.gz']) c.file(name)
  await c.post('/config/network/cluster', { ns_ip: '10.141.0.2' })
  const image = { kernelfile: 'di-linux', initrdfile: 'di-initrd.gz', distribution: 'debian' }
  t.equal(
    (await c.post('/config/osimage/di', { ...image, kerneloptions: 'quiet --- console=ttyS0' })).status,
    201
  )
  const made = await c.post('/config/node/n1', { group: 'compute', macaddr: mac, osimage: 'di', ...fields })
  t.equal(made.status, 201, made.text)
  return c
}

const nodeOf = async (c: Controller) => (await c.get('/config/node/n1')).body.config.node.n1
const token = async (c: Controller, node = 'n1', source = '10.141.0.1') => {
  const { text } = await c.get(`/boot/install/${node}`, { token: null, source })
  const encoded = /^SVC_TOKEN=.*?'([^']+)'/m.exec(text)?.[1] ?? ''
  return encoded.includes('.') ? encoded : Buffer.from(encoded, 'base64').toString()
}
const script = async (c: Controller) => (await c.get(`/boot/search/mac/${mac}`, own)).text
const installer = async (c: Controller, ask: object = own) => (await c.get('/kickstart/install/n1', ask)).text
const seed = (c: Controller, file: string, ask: object = own) => c.get(`/boot/cloud-init/n1/${file}`, ask)
const report = async (c: Controller, state: string) =>
  c.post('/monitor/node/n1', { state }, { token: await token(c), source })

const yaml = (document: string) => parsedYaml([document])[0]

// rules 4.41
t.test('the boot script starts the installer of the node', async t => {
  const c = await started(t, { domain: 'example.org' })
  t.match(await script(c), 'has no packed image', 'with the image alone nothing is booted')
  const argumentsWith = async (provision_method: string) => {
    await c.post('/config/node/n1', { provision_method })
    return /^imgargs kernel initrd=initrd\.img (.*) \|\| goto failed$/m.exec(await script(c))?.[1]
  }
  const options = 'quiet --- console=ttyS0'
  t.equal(
    await argumentsWith('preseed'),
    'auto=true priority=critical interface=auto BOOTIF=01-52-54-00-00-00-01 hostname=n1 domain=example.org ' +
      `netcfg/get_nameservers=10.141.0.2 url=${url}/kickstart/install/n1 ${options}`
  )
  t.equal(
    await argumentsWith('autoinstall'),
    `ip=dhcp autoinstall cloud-config-url=/dev/null ds=nocloud-net;s=${url}/boot/cloud-init/n1/ ${options}`
  )
  c.file('di.tar.gz')
  await c.post('/config/osimage/di', { imagefile: 'di.tar.gz' })
  t.equal(await argumentsWith('kickstart'), `ip=dhcp inst.ks=${url}/kickstart/install/n1 ${options}`)
  for (const file of ['di-linux', 'di-initrd.gz'])
    t.match(await script(c), new RegExp(`imgfetch .*/boot/${file}`))
  await c.post('/config/node/n1', { provision_method: 'http' })
  t.match(await script(c), `imgargs kernel root=svc svc.bootproto=static svc.mac=${mac}`)
  t.match(
    (await c.post('/config/node/n1', { provision_method: 'floppy' })).body.message,
    /torrent, http, stream, kick/
  )
  t.equal((await c.post('/config/cluster', { provision_method: 'preseed' })).status, 400, 'no default of all')
  t.equal((await c.post('/config/node/n1', { provision_fallback: 'preseed' })).status, 400)
})

// rules 4.41
t.test(
  'an installer without a kernel or an initramfs does not boot, and is no image of a rescue',
  async t => {
    const c = await started(t, { provision_method: 'preseed' })
    t.match(
      (await c.post('/config/node/n1', { rescue: 'di' })).body.message,
      /OS image di boots an installer, and a rescue needs a packed image: svcctl node rescue n1 --image IMAGE/
    )
    for (const [field, file] of Object.entries({ kernelfile: 'di-linux', initrdfile: 'di-initrd.gz' })) {
      await c.post('/config/osimage/di', { [field]: null })
      t.match(
        await script(c),
        new RegExp(`OS image di has no .*${field}.*: svcctl osimage set di ${field}=FILE`)
      )
      await c.post('/config/osimage/di', { [field]: file })
    }
    t.match(await script(c), /^imgfetch .*di-initrd\.gz/m)
  }
)

// rules 4.41
t.test('/kickstart/install answers in the form of the installer, masked for others', async t => {
  const c = await started(t, { provision_method: 'preseed' })
  const preseed = await installer(c)
  t.match(preseed, /^d-i passwd\/root-password-crypted password \$6\$salt\$hash\/with\.dots$/m)
  t.match(preseed, `for url in '${url}'; do wget -q -O /tmp/svc.sh "$url"/boot/install/'n1' && break; done`)
  const other = await installer(c, stranger)
  t.notMatch(other, /hash|boot\/install/)
  t.match(other, /^d-i preseed\/early_command string echo .* exit 1$/m, 'it stops')
  t.equal((await c.get('/config/node/n1/_render/kickstart')).text, other)
  await c.post('/config/node/n1', { provision_method: 'autoinstall' })
  const autoinstall = await installer(c)
  t.match(autoinstall, /^#cloud-config\n/, 'the first line that cloud-init asks for')
  const masked = await installer(c, stranger)
  const [{ autoinstall: mine }, { autoinstall: others }] = parsedYaml([autoinstall, masked])
  t.match(mine, {
    version: 1,
    network: {
      version: 2,
      ethernets: { BOOTIF: { match: { macaddress: mac }, addresses: ['10.141.0.1/16'] } }
    },
    storage: { layout: { name: 'direct' } },
    'late-commands': ['sh /run/svc.sh finish'],
    'error-commands': ['sh /run/svc.sh failed'],
    packages: ['curl'],
    'user-data': { chpasswd: { users: [{ name: 'root', type: 'hash', password: hash }] } }
  })
  t.match(
    mine['early-commands'][0],
    `${url}'/boot/install/'n1'`.replace(`'/`, `'`) && /curl .*\/boot\/install\/'n1'/
  )
  t.notMatch(masked, /hash\/with/)
  t.match(others['early-commands'], [/exit 1$/])
  t.equal((await seed(c, 'user-data')).text, await installer(c), 'the installer reads it as user-data')
  await c.post('/config/node/n1', { provision_method: 'kickstart' })
  t.match(await installer(c), /^rootpw --iscrypted /m)
})

const hostile = [
  `a'b"c\nd-i evil/line string x\\`,
  '$(touch /evil) `x` %{ [1] #c: {',
  '*anchor &x !tag \u2028 é \\'
]

t.test('values of admins stay values: debconf and a parser of YAML read each text', async t => {
  const c = await started(t, {})
  for (const text of hostile) {
    const variables = Object.fromEntries(
      ['locale', 'keymap', 'timezone', 'disk', 'mirror_host', 'mirror_directory', 'mirror_proxy']
        .concat('kernel_package', 'packages', 'upgrade')
        .map(name => [name, text])
    )
    const fields = { provision_method: 'preseed', variables, postscript: base64(text) }
    t.equal((await c.post('/config/node/n1', fields)).status, 204)
    const preseed = await installer(c)
    const file = join(scratch(t), 'preseed')
    writeFileSync(file, preseed)
    execFileSync('debconf-set-selections', ['--checkonly', file])
    const lines = preseed.split('\n').filter(line => line !== '' && !line.startsWith('#'))
    for (const line of lines)
      t.match(line, /^(?:d-i|popularity-contest) [a-z-]+\/[\w/-]+ (?:string|select|boolean|password|note)\b/)
    t.notMatch(preseed, /^d-i evil/m)
    t.notMatch(preseed, /\\$/m)
    await c.post('/config/node/n1', { provision_method: 'autoinstall' })
    const automatic = await installer(c)
    const install = await c.get('/boot/install/n1', own)
    t.equal(execFileSync('busybox', ['ash', '-n'], { input: install.text, encoding: 'utf8' }), '')
    await c.post('/config/node/n1', { provision_method: 'http' })
    const [{ autoinstall }, userData] = parsedYaml([automatic, (await seed(c, 'user-data')).text])
    t.match(autoinstall, { locale: text, timezone: text, keyboard: { layout: text } })
    t.strictSame(autoinstall.storage.layout.match, { path: text })
    t.strictSame(autoinstall.packages, ['curl', ...text.split(/\s+/)])
    t.match(userData, { timezone: text, fqdn: 'n1.cluster' })
  }
})

// rules 4.41
t.test('/boot/install has what the installer runs: reports, secrets, the running unit', async t => {
  const c = await started(t, {
    ...{
      provision_method: 'preseed',
      roles: 'login',
      postscript: base64('echo post'),
      partscript: base64('true')
    }
  })
  await c.post('/config/secrets/node/n1', {
    name: 'key',
    path: '/root/.ssh/authorized_keys',
    content: base64('ssh-ed25519 AAAA')
  })
  const { status, text } = await c.get('/boot/install/n1', own)
  t.equal(status, 200)
  const steps = [...text.matchAll(/^ {4}run_step (\w+)/gm)].map(([, step]) => step)
  t.strictSame(steps, ['started', 'partscript', 'network', 'secrets', 'postscript', 'roles', 'completed'])
  t.match(text, `SVC_IMAGEFILE=$(value '${base64('di-initrd.gz')}')`)
  t.equal((await c.get('/boot/install/n1', stranger)).status, 401)
  t.match((await c.get('/config/node/n1/_render/install')).text, /^exit 1$/m, 'a preview refuses to run')
  const file = join(scratch(t), 'installer.sh')
  writeFileSync(file, text)
  t.equal(execFileSync('shellcheck', ['-s', 'sh', '-f', 'gcc', file], { encoding: 'utf8' }), '')
  for (const [shell, ...words] of [['bash'], ['dash'], ['busybox', 'ash']] as const)
    t.equal(execFileSync(shell, [...words, '-n'], { input: text, encoding: 'utf8' }), '')
})

// rules 4.41, 6.8, 6.14
t.test('an installation by preseed is noted, once, and a rescue boots no installer', async t => {
  const c = await started(t, { provision_method: 'preseed', netboot_once: true })
  await script(c)
  await installer(c)
  await report(c, 'installer.completed')
  t.match(await nodeOf(c), {
    netboot: false,
    _running: { osimage: 'di', pack: 'di-initrd.gz' },
    _stale: null
  })
  const ran = await c.get('/boot/running/n1/di-initrd.gz?state=running', own)
  t.equal(ran.status, 200)
  t.match(await nodeOf(c), { _stale: null })
  t.match((await c.get('/monitor/node/n1/_boots')).text, /"kickstart"/)
  const again = await c.post('/config/node/n1?dryrun=yes', { netboot: true })
  t.match(again.text, /disk/, 'the dry run warns of the disk')
  await c.post('/config/osimage/tools', {
    ...{ kernelfile: 'di-linux', initrdfile: 'di-initrd.gz', imagefile: 'compute.tar.gz' }
  })
  c.file('compute.tar.gz')
  t.equal((await c.post('/config/node/n1', { rescue: 'tools' })).status, 204)
  t.match(await script(c), / svc\.rescue=1 /)
  t.notMatch(await script(c), 'preseed')
  t.match((await c.get('/boot/install/n1', own)).text, /^SVC_PROVISION_METHOD='http'$/m)
})

// rules 4.40
t.test('the seed of cloud-init is for the node alone', async t => {
  const c = await started(t, { provision_method: 'http' })
  await c.post('/config/node/n2', { group: 'compute' })
  await c.post('/config/secrets/node/n1', {
    ...{ name: 'munge', path: '/etc/munge/key', content: base64('k\0y'), mode: '0400', owner: 'munge' }
  })
  const files = ['meta-data', 'user-data', 'vendor-data', 'network-config']
  const [own1, other] = [await token(c), await token(c, 'n2', '10.141.0.2')]
  const elsewhere = '192.0.2.7'
  for (const file of files) {
    t.equal((await seed(c, file)).status, 200, file)
    t.equal((await seed(c, file, { token: own1, source: elsewhere })).status, 200, `${file} with its token`)
    t.equal((await seed(c, file, stranger)).status, 401, `${file} for another`)
    t.equal((await seed(c, file, { token: other, source: elsewhere })).status, 401, `${file} for n2`)
    t.equal((await seed(c, file, { source: elsewhere })).status, 401, `${file} for an admin`)
    t.equal(
      (await seed(c, file, { ...own, headers: { Origin: 'null' } })).status,
      403,
      `${file} in a browser`
    )
  }
  t.equal((await c.get('/boot/cloud-init/n9/meta-data', own)).status, 404)
  t.equal((await c.get('/boot/cloud-init/n1/other', own)).status, 404)
  t.equal((await seed(c, 'vendor-data')).text, '')
  const userData = (await seed(c, 'user-data')).text
  t.match(userData, /^#cloud-config\n/)
  t.match(yaml(userData), {
    fqdn: 'n1.cluster',
    // The default of cloud-init is a locale that a Debian image need not have.
    locale: false,
    chpasswd: { users: [{ name: 'root', type: 'hash', password: hash }] },
    write_files: [
      {
        path: '/etc/munge/key',
        permissions: '0400',
        owner: 'munge:0',
        encoding: 'b64',
        content: base64('k\0y')
      }
    ]
  })
})

// rules 4.40
t.test('the instance is a new one after each installation, and no other time', async t => {
  const c = await started(t, { provision_method: 'preseed' })
  const instance = async () => yaml((await seed(c, 'meta-data')).text)
  const seen: string[] = []
  for (const _ of [1, 2]) {
    const before = (await instance())['instance-id']
    await script(c)
    await installer(c)
    t.equal((await instance())['instance-id'], before, 'not before it is installed')
    await report(c, 'installer.completed')
    const { 'instance-id': id, 'local-hostname': host } = await instance()
    t.equal(host, 'n1.cluster')
    c.clockMs += 86_400_000
    await c.get('/boot/running/n1/di-initrd.gz?state=running', own)
    await c.restart()
    t.equal((await instance())['instance-id'], id, 'after a day and a restart')
    seen.push(before, id)
    c.clockMs += 86_400_000
  }
  t.equal(new Set(seen).size, 3, seen.join())
})
