import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { blocksOf } from './support/page.js'
import { checkout } from './support/programs.js'

// Each fenced block of shell in README and docs/ is typed by a test as it stands there, or it is named below
// with the reason why it is not. So a page cannot get commands that nobody has ever run.

/** Who runs what: a page, or a page and one of its headings, and the test that types its blocks. */
const run: Readonly<Record<string, string>> = {
  'README.md#Install it': 'test/api/pages.test.ts',
  'README.md#Try it': 'test/api/pages.test.ts',
  'docs/clients.md': 'test/api/clients.test.ts',
  'docs/ctl.md': 'test/cli/ctl.test.ts',
  'docs/day.md': 'test/api/day.test.ts',
  'docs/day-two.md': 'test/api/pages.test.ts',
  'docs/disk-layouts.md': 'test/api/pages.test.ts',
  'docs/files.md#A file': 'test/api/pages.test.ts',
  'docs/files.md#Files that see the whole cluster': 'test/api/pages.test.ts',
  'docs/getting-started.md': 'test/long/getting-started.test.ts',
  'docs/howto.md#Go back to an earlier image': 'test/api/pages.test.ts',
  'docs/howto.md#Install onto a disk': 'test/long/localinstall.test.ts',
  'docs/howto.md#Two disks as one': 'test/long/mirror.test.ts',
  'docs/howto.md#Give it to nodes': 'test/api/pages.test.ts',
  'docs/howto.md#Install a node again': 'test/api/pages.test.ts',
  'docs/howto.md#How to': 'test/api/pages.test.ts',
  'docs/howto.md#Ask svcd from cron': 'test/api/pages.test.ts',
  'docs/howto.md#Install with the Red Hat installer': 'test/api/pages.test.ts',
  'docs/howto.md#Place a secret on nodes': 'test/api/pages.test.ts',
  'docs/howto.md#A munge key': 'test/api/pages.test.ts',
  'docs/howto.md#Replace a broken machine': 'test/api/pages.test.ts',
  'docs/howto.md#Run scripts of your own while a node is installed': 'test/api/pages.test.ts',
  'docs/interfaces.md': 'test/api/pages.test.ts',
  'docs/inventory.md': 'test/api/pages.test.ts',
  'docs/moving.md': 'test/api/moving.test.ts',
  'docs/power.md': 'test/control/ipmi.test.ts',
  'docs/switches-and-bmcs.md': 'test/api/pages.test.ts',
  'docs/templates.md#Variables of your own': 'test/api/pages.test.ts',
  'docs/troubleshooting.md': 'test/api/pages.test.ts',
  'docs/unknown-machines.md': 'test/unknown/page.test.ts'
}

const systemd = 'it needs a systemd that runs, and root of the machine'
const packages = 'it installs packages and changes the set-up of the machine'

/** What no test types, and why. */
const notRun: Readonly<Record<string, string>> = {
  'docs/logins.md#Log in with the account of the site': `${systemd}; test/cli/checks.test.ts has the check of a directory and a provider`,
  'docs/logins.md#OpenLDAP': packages,
  'README.md#Make an image':
    'debootstrap takes minutes; test/long/elsewhere.test.ts runs its command, and packs the image',
  'docs/secure-boot-keys.md#Who signed the kernel of an image':
    'it needs a packed image; test/image/signature.test.ts asks for the same',
  'docs/secure-boot-keys.md#A key of the site':
    'it writes below /srv; test/cli/site-keys.test.ts runs what these commands run',
  'docs/secure-boot-keys.md#Enrol the key in machines':
    'it writes below /srv, and needs a real BMC; test/long/site-keys.test.ts enrols the exported files',
  'docs/disk-layouts.md#Seal the key to the machine':
    'it reads a file of the admin; test/long/sealed-disks.test.ts makes the same layout',
  'docs/backup.md#A backup': 'it writes below /root; test/backup/backup.test.ts runs the command',
  'docs/backup.md#Restoring it': `${systemd}; test/long/move.test.ts moves a controller`,
  'docs/backup.md#A whole copy': systemd,
  'docs/backup.md#The configuration as one document':
    'it writes below /root; test/cli/transfer.test.ts runs the commands',
  'docs/consoles.md#The first time': packages,
  'docs/secure-boot.md#The first time': packages,
  'docs/small-roots.md#Switching it on': packages,
  'docs/small-roots.md#Streaming': packages,
  'docs/dhcp-and-dns.md#DHCP and DNS':
    'it needs a DHCP server of the system; test/services has requests like these',
  'docs/dhcp-and-dns.md#The first time':
    'it needs a DHCP server of the system; test/services has requests like these',
  'docs/dhcp-and-dns.md#Another prefix for a network': 'test/api/renumber.test.ts has the request',
  'docs/dhcp-and-dns.md#Known machines only': 'test/services has the request, with each server',
  'docs/dhcp-and-dns.md#Names of your own': 'test/services/dns-records.test.ts has the requests',
  'docs/dhcp-and-dns.md#Names that others have too': 'test/services has the request, with each server',
  'docs/installers.md#Debian':
    'it installs a package of the installer; test/long/preseed.test.ts has the same objects',
  'docs/installers.md#Ubuntu':
    'it needs files of an ISO image; test/boot/installers.test.ts has requests like these',
  'docs/dhcp-and-dns.md#Several networks on one wire': 'test/services has the request, with each server',
  'docs/dhcp-and-dns.md#iPXE for firmware that has none': packages,
  'docs/exports.md': 'it writes below /etc; test/exports runs each program with the same commands',
  'docs/files.md#On the node': 'it is typed on a node; test/node runs svc-files',
  'docs/getting-started.md#What you need': packages,
  'docs/grab-and-push.md#Grab and push': 'it needs a node with ssh; test/helper/transfer has the requests',
  "docs/luna.md#From luna's daemon": 'it needs a daemon of luna; test/cli/luna2.test.ts runs the command',
  'docs/howto.md#Give a role to nodes':
    'it writes below /etc/svcd; the second block is a part of a script of a node',
  'docs/howto.md#Keep a second disk': 'it is a part of a partscript, and needs two disks',
  'docs/howto.md#Let root log in': 'it asks for a password on a terminal, in an image that is there',
  'docs/metrics/README.md#The first time': `${systemd}; test/long/metrics.test.ts runs Prometheus with the files`,
  'docs/page.md#Events': 'it does not end; test/monitor has the stream',
  'docs/security.md#TLS in svcd': systemd,
  'docs/security.md#A front server: nginx': packages,
  'docs/templates.md#Templates': 'it needs a DHCP server of the system; test/api/contract has the requests',
  'docs/torrent.md#Tracker: opentracker': packages,
  'docs/torrent.md#Seeder: aria2': packages,
  'docs/torrent.md#Seeder: transmission-daemon': packages,
  'docs/torrent.md#What is wrong':
    'it needs a tracker at a fixed address; test/image asks one in the same way'
}

const pages = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'docs/metrics/README.md',
  // The intros are parts of api.md and templates.md.
  ...readdirSync(join(checkout, 'docs'))
    .filter(name => name.endsWith('.md') && !name.endsWith('-intro.md'))
    .map(name => `docs/${name}`)
]
const blocks = pages.flatMap(page =>
  blocksOf(page)
    .filter(({ language }) => ['sh', 'bash', 'shell', 'console'].includes(language))
    .map(({ heading, line }) => ({ page, name: `${page}#${heading}`, at: `${page}:${line}` }))
)

t.test('each block of shell is run by a test, or says why not', t => {
  t.ok(blocks.length > 50, 'blocks are found')
  const known = ({ page, name }: (typeof blocks)[0]) =>
    page in run || name in run || page in notRun || name in notRun
  const unknown = blocks.filter(block => !known(block)).map(({ name, at }) => `${at} (${name})`)
  t.same(unknown, [], 'no block that nobody runs')
  const names = new Set(blocks.flatMap(({ page, name }) => [page, name]))
  t.same(
    [...Object.keys(run), ...Object.keys(notRun)].filter(name => !names.has(name)),
    [],
    'no line about a block that is not there'
  )
  t.same(
    Object.keys(run).filter(name => name in notRun),
    [],
    'nothing is both'
  )
  t.end()
})

t.test('the test that runs a page names it', t => {
  for (const [name, test] of Object.entries(run)) {
    const page = name.split('#', 1)[0] as string
    const text = existsSync(join(checkout, test)) ? readFileSync(join(checkout, test), 'utf8') : ''
    t.match(text, page, `${test} types ${page}`)
  }
  t.end()
})

t.test('links between the pages lead somewhere', t => {
  const anchor = (heading: string) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-')
  const text = (page: string) =>
    readFileSync(join(checkout, page), 'utf8')
      .replace(/^```[\s\S]*?^```$/gm, '')
      .replace(/<!--[\s\S]*?-->/g, '')
  for (const page of pages)
    for (const [, to = '', at] of text(page).matchAll(/\]\(([^)#: ]*)(?:#([^)]*))?\)/g)) {
      const target = to === '' ? page : join(page, '..', to)
      if (!existsSync(join(checkout, target))) t.fail(`${page}: there is no ${target}`)
      else if (at && target.endsWith('.md')) {
        const anchors = [...text(target).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => anchor(heading))
        if (!anchors.includes(at)) t.fail(`${page}: ${target} has no heading #${at}`)
      }
    }
  t.pass('all were followed')
  t.end()
})
