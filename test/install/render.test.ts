import { execFile, execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { base64, installBmc, installData, installInterface } from '../support/install-data.js'
import { installLibrary, installScript, kickstart, runningFiles } from '../support/install-script.js'
import { scratch } from '../support/scratch.js'

const secrets = [{ name: 'k', path: '/etc/k', content: base64('k') }]
const scripts = { prescript: base64('a'), partscript: base64('b'), postscript: base64('c') }
const v6 = { url: 'http://[fd00::1]:7050', api_address: 'fd00::1' }
const library = 'ab'.repeat(32)
const flags: Record<string, Partial<InstallData>> = {
  plain: {},
  shared: { library },
  several: { urls: ['http://127.0.0.1:7050', 'http://[fd00::1]:7050'] },
  scripts,
  bmc: { setupbmc: true, bmc: installBmc() },
  'bmc-unnamed': { setupbmc: true },
  localinstall: { localinstall: true, kerneloptions: 'quiet' },
  lists: {
    secrets,
    roles: ['ntp', 'slurm'],
    interfaces: [installInterface(), installInterface({ interface: 'BMC', bmc: true })]
  },
  files: { files: true, files_token: 'token' },
  empty: { interfaces: [], domain: '', imagefile: '' },
  everything: {
    ...scripts,
    ...v6,
    setupbmc: true,
    bmc: installBmc(),
    localinstall: true,
    secrets,
    roles: ['r'],
    files: true,
    files_token: 'token',
    insecure: true,
    library
  },
  masked: { ...scripts, masked: true, secrets, setupbmc: true, bmc: installBmc({ password: '********' }) }
}

/** The shell texts of a kickstart: its sections, and the functions that the first one writes. */
function sections(text: string): string[] {
  const found = [...text.matchAll(/^%(?:pre|post|onerror) .*\n([\s\S]*?)^%end$/gm)].map(
    match => match[1] ?? ''
  )
  const functions = /<<'SVC_END_OF_FUNCTIONS'\n([\s\S]*)^SVC_END_OF_FUNCTIONS$/m.exec(text)?.[1]
  return [...found, functions ?? '']
}

/** What shellcheck says of scripts. */
async function shellcheck(t: Test, dialect: string, scripts: readonly string[]): Promise<string> {
  const directory = scratch(t)
  const files = scripts.map((script, i) => {
    const file = join(directory, `${i}.sh`)
    writeFileSync(file, script)
    return file
  })
  try {
    return (await promisify(execFile)('shellcheck', ['-s', dialect, '-f', 'gcc', ...files])).stdout
  } catch (e) {
    if ((e as { code?: string }).code === 'ENOENT') return 'shellcheck is missing: apt-get install shellcheck'
    return (e as { stdout?: string }).stdout ?? String(e)
  }
}

t.test('shellcheck finds nothing, as sh and as bash', async t => {
  const long = process.env.SVCD_LONG !== undefined
  const { plain = {}, everything = {}, masked = {}, ...others } = flags
  // The functions of the library are looked at by themselves.
  const some = [everything, { ...masked, library }, ...(long ? [plain] : [])].map(installData)
  // Each part of these is in `everything` too, and each part that they lack is in none of the others.
  const { shared = {}, several = {}, empty = {} } = others
  const more = Object.values(long ? others : { shared, several, empty })
  const found = await Promise.all([
    shellcheck(t, 'sh', [
      installLibrary(),
      // It is written by a part, as a text.
      readFileSync(new URL('../../templates/install/lib/svc_wipe.sh', import.meta.url), 'utf8'),
      runningFiles(),
      ...some.map(installScript),
      ...more.map(changes => installScript(installData({ ...changes, library })))
    ]),
    shellcheck(t, 'bash', [
      ...(long ? [installLibrary(), ...some.map(installScript)] : []),
      ...some.slice(0, long ? some.length : 1).flatMap(data => sections(kickstart(data)))
    ])
  ])
  t.strictSame(found, ['', ''])
  t.match(await shellcheck(t, 'sh', ['#!/bin/sh\necho $1\n']), 'SC2086', 'shellcheck does look')
})

t.test('every script is read by bash, dash, busybox ash and klibc sh', async t => {
  const scripts = Object.values(flags).map(changes => installScript(installData(changes)))
  for (const input of [installLibrary(), runningFiles(), ...scripts]) {
    for (const [shell, ...words] of [
      ['bash'],
      ['dash'],
      ['busybox', 'ash'],
      ['/usr/lib/klibc/bin/sh']
    ] as const) {
      t.equal(execFileSync(shell, [...words, '-n'], { input, encoding: 'utf8' }), '')
    }
  }
})

// rules 4.15, 5.6
t.test('the variables and functions that admins may use are there', async t => {
  const script = installScript(installData(flags.everything))
  const variables = [
    'SVC_IMAGEFILE',
    'SVC_OSIMAGE',
    'SVC_TOKEN',
    'DECODE',
    '_HOSTNAME',
    '_BOOTIF',
    'INSECURE',
    'INTERFACE',
    'SVC_URL'
  ]
  for (const name of variables) t.match(script, new RegExp(`^ *${name}=`, 'm'))
  for (const name of ['status_update', 'sysinfo_update', 'ip_update', 'dynamic_ip_check', 'init']) {
    t.match(script, new RegExp(`^${name}\\(\\) \\{`, 'm'))
  }
  t.match(script, '\n_SYSTEMROOT=/sysroot\n')
  t.match(script, "\nINSECURE='-k'\n")
  t.match(installScript(installData()), "\nINSECURE=''\n")
})

// rules 4.15
t.test('SVC_URL by its parts', async t => {
  const library = fileURLToPath(new URL('../../templates/install/lib', import.meta.url))
  const url = (protocol: string, address: string, port: string, url: string): string =>
    execFileSync(
      'dash',
      [
        '-c',
        'SVC_API_PROTOCOL=$2 SVC_API_ADDRESS=$3 SVC_API_PORT=$4 _URL_PATH=$5; . "$1/url.sh"; printf %s "$SVC_URL"',
        'sh'
      ].concat(library, protocol, address, port, url),
      { encoding: 'utf8' }
    )
  t.equal(url('http', '10.0.0.1', '7050', 'http://10.0.0.1:7050'), 'http://10.0.0.1:7050')
  t.equal(url('http', 'fd00::1', '7050', 'http://[fd00::1]:7050'), 'http://[fd00::1]:7050')
  t.equal(url('http', '[fd00::1]', '7050', ''), 'http://[fd00::1]:7050')
  t.equal(url('http:', 'fd00::1', '7050', 'http://[fd00::1]:7050/'), 'http://[fd00::1]:7050')
  t.equal(url('https://', 'front', '443', 'https://front/a/b/'), 'https://front:443/a/b')
})

t.test('only the parts that a node needs are sent to it', async t => {
  t.notMatch(installScript(installData()), /ipmitool|grub|install_role/)
  t.match(installScript(installData(flags.everything)), /ipmitool[\s\S]*grub/)
})

t.test('the shell parts hold nothing that the template engine would read', async t => {
  const library = fileURLToPath(new URL('../../templates/install/lib', import.meta.url))
  for (const name of readdirSync(library)) {
    const text = readFileSync(join(library, name), 'utf8')
    // They join parts, so that edited templates that include them get all.
    const include = /^\{% include 'install\/lib\/\w+\.sh' -?%\}$/gm
    t.notMatch(
      ['svc-files.sh', 'inventory.sh'].includes(name) ? text.replace(include, '') : text,
      /\{\{|\{%|\{#/,
      name
    )
  }
})
