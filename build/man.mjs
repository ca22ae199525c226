// Prints a manual page made from tables in the code: node build/man.mjs svcd.8|svcd.ini.5|svcctl.1. Its date
// is that of SOURCE_DATE_EPOCH, else today.
import { usage } from '../dist/cli/usage.js'
import { table, usersDoc } from '../dist/config/keys.js'
import { help } from '../dist/ctl/help.js'
import { version } from '../dist/version.js'

const epoch = process.env.SOURCE_DATE_EPOCH
const date = (epoch ? new Date(Number(epoch) * 1000) : new Date()).toISOString().slice(0, 10)

/** Escapes a text for roff. */
const plain = text =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/gm, '\\&$1')

const head = (name, section, what) =>
  `.TH ${name.toUpperCase()} ${section} ${date} "svcd ${version.service}"\n.nh\n.SH ` +
  `NAME\n${plain(name)} \\- ${what}\n`
const part = (title, text) => `.SH "${title}"\n${text}`
const entry = (left, text) => `.TP\n.B ${plain(left)}\n${plain(text)}\n`

/** Parses a help text of two columns; the right one may continue in the next lines. */
function entries(text) {
  const found = []
  for (const line of text.split('\n')) {
    const [, left, right = ''] = /^ {2,6}(\S.*?)(?: {2,}(\S.*)| *)$/.exec(line) ?? []
    if (left) found.push([left, right])
    else if (/^ {7,}\S/.test(line)) found.at(-1)[1] += ` ${line.trim()}`
  }
  return found.map(([left, right]) => [left, right.trim()])
}

const listed = rows => rows.map(([left, right]) => entry(left, right)).join('')

function daemonPage() {
  const rows = entries(usage)
  const isOption = ([left]) => left.startsWith('--')
  return [
    head('svcd', 8, 'cluster provisioning and configuration service'),
    part('SYNOPSIS', '.B svcd\n.I COMMAND\n.RI [ OPTION ]...\n'),
    part(
      'DESCRIPTION',
      `svcd runs on the controller of a cluster.
It keeps groups, nodes, networks and OS images, answers machines that boot
from the network, hands out images, and drives the DHCP and DNS servers of
the system.
An ini file and an http interface configure it.
systemd runs it: systemctl restart svcd, journalctl \\-u svcd.
`
    ),
    part('COMMANDS', listed(rows.filter(row => !isOption(row)))),
    part('OPTIONS', listed(rows.filter(isOption))),
    part(
      'FILES',
      listed([
        ['/etc/svcd/svcd.ini', 'the configuration, see svcd.ini(5)'],
        ['/etc/svcd/templates', 'templates of boot scripts, install scripts, DHCP and DNS files'],
        ['/etc/svcd/roles, /etc/svcd/scripts', 'scripts of yours that nodes fetch'],
        [
          '/var/lib/svcd',
          'the state: objects, keys, audit logs, packed images and the directories of images'
        ],
        ['/var/lib/svcd/admin-password', 'the password of admin, while [users] of the ini is empty'],
        ['/usr/share/doc/svcd', 'the documents']
      ])
    ),
    part('EXIT STATUS', 'Done: 0. A failure: 1. A wrong command line: 2.\n'),
    part('SEE ALSO', '.BR svcctl (1),\n.BR svcd.ini (5)\n')
  ].join('')
}

function iniPage() {
  const sections = Object.entries(table).map(([name, keys]) => {
    const rows = Object.entries(keys).map(([key, { default: value, doc }]) =>
      entry(`${key} = ${value}`.trimEnd(), doc)
    )
    const users = name === 'auth' ? `.SS [users]\n${plain(usersDoc.join('\n'))}\n` : ''
    return `.SS [${name}]\n${rows.join('')}${users}`
  })
  return [
    head('svcd.ini', 5, 'configuration of svcd'),
    part(
      'DESCRIPTION',
      `svcd reads /etc/svcd/svcd.ini when it starts.
.B svcd check
names every problem of it.
A relative path is relative to the directory of the file.
Durations and sizes have a unit: 30s, 10m, 4h, 7d; 64k, 1m, 2g.
A comment has a line of its own.
A value with ; or # stands in double quotes.
.PP
Below, each key has the value that it has while the file does not name it.
The installed file names absolute paths.
`
    ),
    part('KEYS', sections.join('')),
    part('SEE ALSO', '.BR svcd (8),\n.BR svcctl (1)\n')
  ].join('')
}

function clientPage() {
  const [synopsis = '', ...blocks] = help().trimEnd().split('\n\n')
  const lines = synopsis.replace('Usage:', '      ').split('\n')
  const body = blocks.map((block, index) => {
    const [first = '', ...rest] = block.split('\n')
    const title = /^(\w+):$/.exec(first)?.[1]
    if (title) return part(title.toUpperCase(), listed(entries(rest.join('\n'))))
    return /^ {2}\S/.test(block) ? listed(entries(block)) : `${index === 0 ? '' : '.PP\n'}${plain(block)}\n`
  })
  return [
    head('svcctl', 1, 'asks a controller that runs svcd'),
    part('SYNOPSIS', lines.map(line => `${plain(line.trim())}\n`).join('.br\n')),
    part('DESCRIPTION', body.join('')),
    part('SEE ALSO', '.BR svcd (8),\n.BR svcd.ini (5)\n')
  ].join('')
}

const pages = { 'svcd.8': daemonPage, 'svcd.ini.5': iniPage, 'svcctl.1': clientPage }
const page = pages[process.argv[2]]
if (!page) throw new Error(`Usage: node build/man.mjs ${Object.keys(pages).join('|')}`)
process.stdout.write(page())
