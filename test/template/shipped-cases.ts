import type { InstallData } from '../../lib/boot/install-data.js'
import { layoutData } from '../../lib/disk-layout/data.js'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import { everything, loaders, mac, many, type Objects } from '../services/cluster.js'
import { servers, templateData } from '../services/rendered.js'
import { base64, installBmc, installData, installInterface } from '../support/install-data.js'
import { shippedLayout, wholeLayout } from '../support/layout-script.js'

/** One rendering of a shipped template. */
export interface Case {
  readonly template: string
  readonly what: string
  readonly data: object
}

/** All combinations of one value for each key. */
function combinations(options: Readonly<Record<string, readonly unknown[]>>): Record<string, unknown>[] {
  let all: Record<string, unknown>[] = [{}]
  for (const [key, values] of Object.entries(options))
    all = all.flatMap(chosen => values.map(value => ({ ...chosen, [key]: value })))
  return all
}

const URLS = [
  ['http://10.141.255.254:7050'],
  ['http://[fd00::1]:7050', 'http://10.141.255.254:7050', 'https://controller']
]

const bootCases = (name: string, options: Readonly<Record<string, readonly unknown[]>>): Case[] =>
  combinations({ urls: URLS, variables: [{}], ...options }).map((data, i) => ({
    template: `boot/${name}`,
    what: `case ${i + 1}`,
    data: { ...data, url: (data.urls as readonly string[])[0] }
  }))

const names = (count: number) => Array.from({ length: count }, (_, i) => `node${i + 1}`)

const kernelArguments = {
  node: ['node001'],
  bootproto: ['static', 'dhcp'],
  mac: ['52:54:00:00:00:01', '${netX/mac}'],
  ip: ['10.141.0.1/16', ''],
  hostname: ['node001.cluster', 'node001'],
  nameserver: ['10.141.0.1 10.141.0.2', ''],
  service: [0, 1],
  rescue: [false, true],
  provision_method: ['http', 'kickstart', 'preseed', 'autoinstall'],
  kerneloptions: ['', 'console=ttyS0,115200n8 quiet', `a="b c" d='e' f=\\$x`]
}

const BOOT: readonly Case[] = [
  ...bootCases('templ_boot_disk.cfg', {}),
  ...bootCases('templ_boot_ipxe_short.cfg', {}),
  ...bootCases('templ_boot_error.cfg', {
    node: ['', 'node001'],
    reason: ['node node001 has no OS image', 'ö {{ url }} {% if %} ${netX/mac} && goto x ; exit'],
    menu: ['boot', 'boot/short']
  }),
  // Known and unknown MAC; lists that are empty, full, and longer than what is listed.
  ...bootCases('templ_boot_ipxe.cfg', {
    mac: ['', '52:54:00:00:00:01'],
    timeout_ms: [5000],
    nodes: [[], ['node001'], names(250)],
    groups: [[], ['compute', 'login']],
    all_nodes: [true, false],
    all_groups: [true, false]
  }),
  ...bootCases('arguments.cfg', {
    ...kernelArguments,
    loader: ['ipxe', 'grub'],
    further: ['', 'svc.trust=report'],
    ip: [''],
    kerneloptions: ['quiet'],
    service: [0]
  }),
  ...bootCases('grub/templ_grub.cfg', { manual: [false, true] }),
  ...bootCases('grub/templ_grub_nodes.cfg', { nodes: [[], ['node001']], all_nodes: [true, false] }),
  ...bootCases('grub/templ_grub_node.cfg', {
    node: ['node001'],
    rescue: [false, true],
    kernel: ['/svcd/ab'],
    initrd: ['/svcd/cd'],
    arguments: ['root=svc']
  }),
  ...bootCases('grub/templ_grub_disk.cfg', {}),
  ...bootCases('grub/templ_grub_error.cfg', { title: ["'svcd: no'"], reason: ["'no image'"] }),
  ...bootCases('templ_boot_node.cfg', {
    ...kernelArguments,
    loader: ['ipxe'],
    further: [''],
    kernelfile: ['vmlinuz-6.1'],
    initrdfile: ['initrd.img-6.1'],
    warning: ['', 'node node001 asks from outside'],
    menu: ['boot', 'boot/short']
  })
]

/** What an administrator's text can hold to break out of where it is put. */
const hostile = [
  `it's "quoted" \`id\` $(id) \${HOME} \\ & ; | <b>`,
  "two lines\nSVC_END_OF_FUNCTIONS\n%end\n'\nEOF\n",
  '{{ token }} {% raw %} {# no comment #} {%- endraw -%}',
  'Zoë 😀 straße \u2028 \u0085 \u00a0 \t tab',
  "'",
  ' '
]

const script = base64('#!/bin/sh\necho "it\'s"\n')
/** As `base64` prints it without -w0. */
const longScript = base64('echo long\n'.repeat(20)).replace(/.{76}/g, '$&\n')

/** Each a flag of the install templates with the values that change what is rendered. */
const FLAGS: Readonly<Record<string, readonly Partial<InstallData>[]>> = {
  variables: [
    {
      variables: {
        ...{ locale: 'de_DE.UTF-8', keymap: 'de', timezone: 'Europe/Berlin', disk: '/dev/sda' },
        ...{ mirror_host: 'mirror', mirror_directory: '/debian', mirror_proxy: 'http://proxy:3128' },
        ...{ kernel_package: 'linux-image-amd64', packages: 'vim  less', upgrade: 'none' }
      }
    }
  ],
  network: [{ network: '{"version":2,"ethernets":{}}' }],
  masked: [{ masked: true, token: '********' }],
  library: [{ library: 'cd'.repeat(32) }],
  urls: [{ urls: ['http://127.0.0.1:7050', "http://it's", 'http://[fd00::1]'] }],
  insecure: [
    { insecure: true, url: 'https://[fd00::1]', api_protocol: 'https', api_address: 'fd00::1', api_port: 443 }
  ],
  bmc: [
    { setupbmc: true },
    { setupbmc: true, bmc: installBmc() },
    {
      setupbmc: true,
      bmc: installBmc({ unmanaged_bmc_users: 'delete', ipaddress: '', netmask: '', gateway: '' })
    }
  ],
  roles: [{ roles: ['login'] }, { roles: ['compute', 'gpu.x'] }],
  missing_roles: [{ missing_roles: ['gpu.x'], masked: true }],
  identity: [{ identity: ['/etc/machine-id', '/etc/ssh/ssh_host_*'] }, { identity: hostile }],
  secrets: [
    { secrets: [{ name: 'key', path: '/etc/munge/munge.key', content: base64('k\0y') }] },
    {
      secrets: [{ name: 'key', path: '/etc/munge/munge.key', content: base64('k\0y') }],
      secret_access: { key: '0400 munge munge' }
    },
    { secrets: hostile.map((path, i) => ({ name: `s${i}`, path: `/etc/${path}`, content: '' })) }
  ],
  layout_secrets: [
    {
      secrets: [{ name: 'key', path: '/etc/key', content: base64('k') }],
      layout_secrets: ['key', 'none'],
      partscript: script
    }
  ],
  sealed_secrets: [
    {
      secrets: ['key', 'other'].map(name => ({ name, path: `/etc/${name}`, content: base64('k') })),
      layout_secrets: ['key', 'other'],
      sealed_secrets: ['key'],
      localinstall: true
    },
    {
      secrets: [{ name: 'key', path: '/etc/key', content: base64('k') }],
      layout_secrets: ['key'],
      sealed_secrets: ['key'],
      localinstall: true
    }
  ],
  prescript: [{ prescript: script }, { prescript: longScript }],
  partscript: [{ partscript: script }, { partscript: longScript }],
  postscript: [{ postscript: script }, { postscript: longScript }],
  localinstall: [{ localinstall: true }],
  rescue: [{ rescue: true }],
  files: [{ files: true, files_token: 'the.running.token' }],
  rootpw: [{ rootpw: '$6$salt$hash/with.dots' }],
  imagesum: [{ imagesum: 'ab'.repeat(32) }],
  imagesize: [{ imagesize: 123_456_789_012 }],
  kerneloptions: [{ kerneloptions: `console=ttyS0 a="b c" it's` }],
  ntp: [{ ntp_server: '10.141.255.252', interfaces: [installInterface({ ntp_server: '' })] }],
  domain: [{ domain: '', hostname: 'node001' }],
  root: [
    {
      root: {
        ...{
          format: 'squashfs',
          file: "it's $(x).squashfs",
          sha256: 'ab'.repeat(32),
          bytes: 8192,
          torrent: ''
        },
        ...{ roothash: 'cd'.repeat(32), hashoffset: 4096 }
      }
    }
  ],
  torrent: [{ torrent: 'rocky9.tar.gz.torrent', provision_method: 'torrent' }],
  interfaces: [
    { interfaces: [] },
    // DHCP, with and without a MAC.
    { interfaces: [installInterface({ ipaddress: '' })] },
    { interfaces: [installInterface({ ipaddress: '', macaddress: '', gateway: '', nameserver: '' })] },
    {
      interfaces: [
        installInterface(),
        installInterface({ interface: 'BMC', network: 'ipmi', provision: false, bmc: true }),
        installInterface({ interface: 'eth1', macaddress: '', provision: false, options: 'mtu=9000' }),
        installInterface({ interface: 'ib0', ipaddress: '', gateway: '', provision: false }),
        installInterface({ interface: 'more', routes: ['10.9.0.0/16 via 10.141.0.9'], options: 'on=BOOTIF' })
      ]
    }
  ],
  distribution: ['debian', 'ubuntu', 'rocky', 'opensuse', 'arch'].map(distribution => ({ distribution })),
  text: hostile.map(text => ({
    comment: text,
    vendor: text,
    assettag: text,
    kerneloptions: text,
    rootpw: text,
    group: text,
    osimage: text,
    imagefile: text,
    domain: text,
    ntp_server: text,
    interfaces: [installInterface({ options: text, ns_hostname: text, ntp_server: text })],
    setupbmc: true,
    bmc: installBmc({ username: text, password: text }),
    roles: [text],
    missing_roles: [text],
    prescript: text,
    secrets: [{ name: text, path: text, content: text }]
  }))
}

/** Each value of each flag alone, all flags together with each left out, and all with each value of one. */
function installCases(template: string): Case[] {
  const cases: Case[] = []
  const add = (what: string, ...changes: readonly Partial<InstallData>[]) =>
    cases.push({ template, what, data: installData(Object.assign({}, ...changes)) })
  const flags = Object.entries(FLAGS)
  const others = (flag: string) => flags.flatMap(([name, [first = {}]]) => (name === flag ? [] : [first]))
  add('no flag')
  for (const [flag, values] of flags) {
    add(`all but ${flag}`, ...others(flag))
    for (const [i, value] of values.entries()) {
      add(`${flag} alone, ${i + 1}`, value)
      add(`all with ${flag}, ${i + 1}`, ...others(flag), value)
    }
  }
  return cases
}

/**
 * Two networks on a wire of a relay, one with a port of InfiniBand, one with that alone, and one by itself.
 */
const wires: Objects = {
  network: Object.fromEntries(
    ['one', 'two', 'alone', 'last'].map((name, i) => [
      name,
      {
        ...{ network: `10.${i + 1}.0.0/16`, gateway: `10.${i + 1}.0.254`, dhcp: true },
        ...{ dhcp_range_begin: `10.${i + 1}.1.1`, dhcp_range_end: `10.${i + 1}.1.9` },
        ...(name === 'two' ? { shared_with: 'one' } : {}),
        routes: [`10.9.0.0/16 via 10.${i + 1}.0.253`],
        dns_records: [{ host: 'www', alias: 'elsewhere.example.org' }]
      }
    ])
  ),
  node: Object.fromEntries(
    ['one', 'two', 'alone'].map((network, i) => [
      `n${i}`,
      {
        interfaces: [
          {
            interface: 'BOOTIF',
            network,
            ipaddress: `10.${i + 1}.0.1`,
            macaddress: i === 1 ? mac(9) : `00:02:c9:03:00:1a:2b:0${i}`
          }
        ]
      }
    ])
  )
}

/** The templates of the DHCP and DNS servers, as these are given their data. */
async function serviceCases(): Promise<Case[]> {
  const cases: Case[] = []
  const two = [
    { name: 'c1', address: '10.141.255.254' },
    { name: 'c2', address: '10.141.255.251' }
  ]
  const bare = { next_server: '', interfaces: ['eth0', 'eth1'], dns_too: true }
  for (const [service, server] of servers)
    for (const [what, objects, more, ini, controllers] of [
      ['nothing', {}, {}, {}, undefined],
      ['one', many(1), bare, { controlSocket: '' }, undefined],
      ['everything', everything, {}, {}, undefined],
      ['loaders', loaders, {}, {}, undefined],
      ['wires', wires, {}, {}, undefined],
      ['one of two controllers', everything, { standby: true }, {}, two]
    ] as const)
      for (const { template, data } of await templateData(service, server, objects, more, ini, controllers))
        cases.push({ template, what: `${what} of ${service} ${server}`, data })
  return cases
}

const CONSOLE = {
  ...{ name: 'node001', group: 'compute', setup: 'boards', address: '10.148.0.1', port: 623 },
  ...{ username: 'admin', password: '736563726574', cipher: 3, privilege: 'admin' }
}

const CONSOLES: readonly Case[] = combinations({
  variables: [{}, { conman_options: 'W:solport,W:opensesspriv' }],
  port: [7891],
  log_directory: ['/var/lib/svcd/consoles'],
  consoles: [[], [CONSOLE, { ...CONSOLE, name: 'node002', port: 6230, cipher: 17, privilege: 'op' }]],
  notes: [[], ['node003: field "username" of BMC set-up x has a character that conmand does not take']]
}).map((data, i) => ({ template: 'consoles/templ_conman.cfg', what: `case ${i + 1}`, data }))

const TFTP: readonly Case[] = combinations({
  variables: [{}],
  directory: ['/var/lib/svcd/tftp'],
  alone: [true, false],
  interfaces: [[], ['eth0', 'eth1']]
}).map((data, i) => ({ template: 'tftp/templ_dnsmasq.cfg', what: `case ${i + 1}`, data }))

/** Every shipped template in every case that changes what it renders. */
export const CASES: readonly Case[] = [
  ...BOOT,
  ...TFTP,
  ...installCases('install/templ_install.cfg'),
  ...installCases('install/templ_kickstart.cfg'),
  ...[...Object.keys(shippedLayouts).map(shippedLayout), wholeLayout].flatMap(layout =>
    ['', '_kickstart'].map(kind => ({
      template: `install/templ_disklayout${kind}.cfg`,
      what: layout.name,
      data: layoutData(layout)
    }))
  ),
  ...installCases('install/templ_preseed.cfg'),
  ...installCases('install/templ_autoinstall.cfg'),
  ...installCases('install/templ_installer.cfg'),
  ...installCases('install/templ_user_data.cfg'),
  { template: 'install/templ_vendor_data.cfg', what: 'nothing', data: installData({}) },
  { template: 'install/templ_library.cfg', what: 'without a node', data: {} },
  ...(await serviceCases()),
  ...CONSOLES
]
