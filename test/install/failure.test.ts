import t from 'tap'
import { base64, installBmc, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { exits, failed, install, type Plan } from './install.js'
import { everyCase, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

// They wait for programs in turns.
t.jobs = 3

/** Every step with a way to make it fail, and the reason that the report must give. */
const failures: Record<string, [string, Omit<Plan, 'shell'>, RegExp]> = {
  'a prescript that fails': ['prescript', { data: { prescript: base64('exit 3') } }, /ended with status 3/],
  'a prescript that is no shell': ['prescript', { data: { prescript: base64('if (') } }, /ended with status/],
  'a prescript that is no base64': ['prescript', { data: { prescript: '!' } }, /cannot be decoded/],
  'no ipmitool': [
    'bmcsetup',
    { data: { setupbmc: true, bmc: installBmc() } },
    /ipmitool is not in this initramfs/
  ],
  'no BMC': [
    'bmcsetup',
    { data: { setupbmc: true, bmc: installBmc() }, programs: { ipmitool: 'true' } },
    /\/dev\/ipmi0 is missing/
  ],
  'setupbmc without a set-up': ['bmcsetup', { data: { setupbmc: true } }, /no BMC set-up is named/],
  'a partscript that fails': ['partscript', { data: { partscript: base64('false') } }, /ended with status 1/],
  'a partscript that mounts nothing': [
    'partscript',
    { data: { partscript: base64('true') } },
    /nothing mounted/
  ],
  'no image': [
    'download',
    { answers: { '/files/rocky9.tar.gz': response => response.writeHead(404).end() } },
    /cannot fetch/
  ],
  'an image that is no archive': [
    'unpack',
    { answers: { '/files/rocky9.tar.gz': 'no archive' } },
    /cannot unpack/
  ],
  'a directory where a network file goes': [
    'network',
    { answers: { '/files/rocky9.tar.gz': packImage({ 'etc/hostname/x': '' }) } },
    /\/etc\/hostname is no place/
  ],
  'a secret that is no base64': [
    'secrets',
    { data: { secrets: [{ name: 's', path: '/etc/key', content: '!' }] } },
    /secret for \/etc\/key cannot be decoded/
  ],
  'a postscript that fails': [
    'postscript',
    { data: { postscript: base64('exit 9') } },
    /ended with status 9/
  ],
  'a role that the controller has not': [
    'roles',
    { data: { roles: ['ntp'] } },
    /cannot fetch .*\/boot\/roles\/ntp/
  ],
  'an image that is not mounted any more': [
    'completed',
    { data: { postscript: base64('umount -l "$_SYSTEMROOT"') } },
    /nothing is mounted on \/sysroot any more/
  ],
  'an installation without a partscript': [
    'partscript',
    { data: { localinstall: true } },
    /localinstall needs a partscript/
  ],
  'an image without a boot loader': [
    'bootloader',
    {
      data: { localinstall: true, prescript: base64('mkdir -p /sysroot; mount -t tmpfs /dev/fake /sysroot') }
    },
    /neither grub2-install nor/
  ]
}

/** Those in which a program of the system, not the shell, tells the reason. */
const byBash = new Set([
  ...['a prescript that fails', 'a prescript that is no shell', 'a prescript that is no base64', 'no image'],
  ...['an image that is no archive', 'an image without a boot loader']
])

for (const shell of shells) {
  for (const [name, [step, plan, reason]] of Object.entries(failures)) {
    if (!everyCase(shell) && !byBash.has(name)) continue
    t.test(`${name}: ${step} is named, ${shell}`, async t => {
      const done = await install(t, { shell, ...plan })
      failed(t, done, step, reason)
      t.match(done.run.output, `FAILED in step ${step}`)
      if (step !== 'bootloader') t.notMatch(done.run.mounts, / \/sysroot\//)
    })
  }
}

// rules 4.15
t.test('no base64 decoder: a warning, and a failure only where something has to be decoded', async t => {
  const without = ['base64', 'openssl', 'python3']
  const idle = await install(t, { shell: 'bash', without })
  exits(t, [idle.run], [0])
  t.match(idle.run.output, 'warning: no base64 decoder')
  const needed = await install(t, { shell: 'bash', without, data: { prescript: base64('true') } })
  failed(t, needed, 'prescript', /cannot be decoded/)
})

t.test('each decoder decodes a long script with line breaks', async t => {
  const script = `# ${'long '.repeat(2000)}\nprintf decoded > /decoded\n`
  const prescript = base64(script).replace(/.{76}/g, '$&\n')
  for (const without of [[], ['base64'], ['base64', 'openssl']]) {
    const done = await install(t, {
      shell: 'bash',
      without,
      programs: { python3: 'exec /usr/bin/python3 "$@"' },
      data: { prescript }
    })
    exits(t, [done.run], [0])
    t.equal(done.machine.text('decoded'), 'decoded', `without ${without.join()}`)
  }
})

t.test('neither curl nor wget', async t => {
  const done = await install(t, { shell: 'bash', without: ['curl', 'wget'] })
  t.not(done.run.status, 0)
  t.match(done.run.output, 'neither curl nor wget')
})

t.test('a preview with masked secrets does not install', async t => {
  const script = installScript(installData({ masked: true }))
  t.match(script.split('\n', 12).join('\n'), /# .*secrets are masked/)
  const done = await install(t, { shell: 'ash', data: { masked: true, token: '********' } })
  t.not(done.run.status, 0)
  t.equal(done.controller.requests.length, 0)
})
