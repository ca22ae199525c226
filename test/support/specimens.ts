/** What the rules say of one type of object (rules 2.1), and a value for every field of it. */
export interface Specimen {
  readonly type: 'network' | 'group' | 'node' | 'osimage' | 'bmcsetup'
  /** In messages. */
  readonly title: string
  readonly updated: 200 | 204
  readonly cloned: 201 | 204 | undefined
  readonly deleted: 201 | 204
  readonly newName: string
  /** What a new one needs. */
  readonly least: Readonly<Record<string, unknown>>
  /** A value for every settable field, none of them what is in force without it. */
  readonly full: Readonly<Record<string, unknown>>
  /** Other spellings: [spelling, the spelling that is returned, a value]. */
  readonly variants: readonly (readonly [string, string, unknown])[]
}

export const awkward = 'He said "no";\n\ttab \\ $HOME `id` <b>&amp; 🙂 ü \u2028 end'
const script = Buffer.from('#!/bin/sh\necho "$1"\n').toString('base64')

/** Field of groups and nodes alike; the objects they name are made by `makeReferred`. */
const inheritable = {
  setupbmc: true,
  bmcsetupname: 'referred',
  domain: 'example.org',
  osimage: 'referred',
  prescript: script,
  partscript: script,
  postscript: script,
  netboot: false,
  netboot_once: true,
  bootmenu: true,
  localinstall: true,
  comment: awkward,
  roles: 'compute,login',
  provision_interface: 'eth7',
  provision_method: 'http',
  provision_fallback: 'torrent',
  unmanaged_bmc_users: 'delete',
  kerneloptions: 'rd.debug a="b c"',
  variables: { ntp: awkward, rack: '' },
  files: ['referred'],
  disklayout: 'referred',
  loader: 'grub',
  trust: 'report',
  root_format: 'squashfs'
}
const bmc = [
  ['kernopts', 'kerneloptions', 'quiet'],
  ['bmcsetup', 'setupbmc', false],
  ['bmcsetup', 'bmcsetupname', 'other']
] as const

export const specimens: readonly Specimen[] = [
  {
    type: 'network',
    title: 'network',
    updated: 200,
    cloned: 204,
    deleted: 201,
    newName: 'newnetname',
    least: { network: '10.1.0.0/16' },
    full: {
      network: '10.2.0.0/16',
      gateway: '10.2.255.254',
      ns_hostname: 'ns.example.org',
      ns_ip: '192.0.2.53',
      ntp_server: 'ntp.example.org',
      comment: awkward,
      dhcp: true,
      dhcp_range_begin: '10.2.1.1',
      dhcp_range_end: '10.2.1.99',
      loader: 'grub'
    },
    variants: [
      ['nameserver_ip', 'ns_ip', '192.0.2.7'],
      ['dhcp_begin', 'dhcp_range_begin', '10.2.1.2'],
      ['dhcp_end', 'dhcp_range_end', '10.2.1.98'],
      ['dhcp_enable', 'dhcp', false]
    ]
  },
  {
    type: 'group',
    title: 'group',
    updated: 204,
    cloned: 201,
    deleted: 204,
    newName: 'newgroupname',
    least: {},
    full: inheritable,
    variants: bmc
  },
  {
    type: 'node',
    title: 'node',
    updated: 204,
    cloned: 201,
    deleted: 204,
    newName: 'newhostname',
    least: {},
    full: {
      ...inheritable,
      switch: 'switch 7, rack "B"',
      switchport: 12,
      service: true,
      tpm_uuid: 'uuid',
      tpm_pubkey: 'key',
      tpm_sha256: 'digest',
      vendor: awkward,
      assettag: 'A-1',
      serial: 'CZ 2026/1',
      uuid: '4c4c4544-0033-5610-8052-b4c04f4d3132',
      rescue: 'packed'
    },
    variants: bmc
  },
  {
    type: 'osimage',
    title: 'OS image',
    updated: 204,
    cloned: undefined,
    deleted: 204,
    newName: 'newosimage',
    least: {},
    full: {
      comment: awkward,
      distribution: 'debian',
      path: '/srv/images/a b',
      kernelfile: 'vmlinuz-6.1+deb12~1',
      initrdfile: 'initrd.img',
      kernelversion: '6.1.0',
      kernelmodules: 'ipmi_si,ipmi_devintf',
      kerneloptions: 'console=ttyS0,115200n8 quiet "a b" x=$y;z',
      dracutmodules: 'svc, -plymouth',
      grab_exclude: ['/proc/*', awkward],
      grab_filesystems: ['/', '/boot'],
      imagefile: 'image.tar.gz',
      root_format: 'erofs'
    },
    variants: [
      ['kernver', 'kernelversion', '6.2'],
      ['kernmodules', 'kernelmodules', 'a,b'],
      ['kernopts', 'kerneloptions', 'quiet'],
      ['grab_exclude_list', 'grab_exclude', ['/tmp']],
      ['tarball', 'imagefile', 'other.tar.gz']
    ]
  },
  {
    type: 'bmcsetup',
    title: 'BMC set-up',
    updated: 200,
    cloned: 201,
    deleted: 204,
    newName: 'newbmcname',
    least: {},
    full: {
      mgmtchannel: 3,
      netchannel: 4,
      userid: 5,
      username: 'root',
      password: '"$(id)`\n\t<b> # 🙂',
      protocol: 'redfish',
      cipher: 17,
      privilege: 'operator',
      port: 6230,
      verify_certificate: false,
      system: 'System.Embedded.1',
      comment: awkward
    },
    variants: []
  }
]

/** Fields in which an empty text is a text; elsewhere it means "not set", as null does. */
export const freeTexts = new Set(
  'comment switch tpm_uuid tpm_pubkey tpm_sha256 vendor assettag username password'
    .concat(' kernelversion kernelmodules dracutmodules')
    .split(' ')
)

/** What stands where nothing is set (rules 3.3, 1.4). */
export const unset: Readonly<Record<Specimen['type'], Readonly<Record<string, unknown>>>> = {
  network: {
    gateway: null,
    ns_hostname: null,
    ns_ip: null,
    ntp_server: null,
    comment: null,
    dhcp: false
  },
  group: settings('cluster'),
  node: {
    ...settings('cluster'),
    group: null,
    macaddr: null,
    switch: null,
    switchport: null,
    service: false,
    status: null,
    _running: null,
    _stale: null,
    tpm_uuid: null,
    tpm_pubkey: null,
    tpm_sha256: null,
    vendor: null,
    assettag: null,
    serial: null,
    uuid: null,
    rescue: null
  },
  osimage: {
    comment: null,
    distribution: 'redhat',
    path: null,
    kernelfile: null,
    initrdfile: null,
    kernelversion: null,
    kernelmodules: null,
    kerneloptions: null,
    dracutmodules: null,
    grab_exclude: [],
    grab_filesystems: [],
    imagefile: null,
    _source: null,
    _kernelsigner: null,
    _rehearsed: null
  },
  bmcsetup: {
    mgmtchannel: 1,
    netchannel: 1,
    userid: 2,
    username: null,
    password: null,
    protocol: 'ipmi',
    cipher: 3,
    privilege: 'administrator',
    port: null,
    verify_certificate: true,
    system: null,
    comment: null
  }
}

function settings(ini: string) {
  return {
    setupbmc: false,
    bmcsetupname: null,
    domain: null,
    osimage: null,
    osimagetag: 'default',
    osimagetagid: null,
    prescript: '',
    partscript: '',
    postscript: '',
    netboot: true,
    bootmenu: false,
    localinstall: false,
    comment: null,
    roles: null,
    provision_interface: 'BOOTIF',
    provision_method: 'torrent',
    provision_fallback: 'http',
    unmanaged_bmc_users: null,
    netboot_once: false,
    kerneloptions: null,
    variables: {},
    files: [],
    disklayout: null,
    loader: null,
    trust: 'none',
    root_format: null,
    interfaces: [],
    _override: false,
    _setupbmc_source: 'default',
    _bmcsetupname_source: 'default',
    _domain_source: 'default',
    _osimage_source: 'default',
    _osimagetag_source: 'default',
    _prescript_source: 'default',
    _partscript_source: 'default',
    _postscript_source: 'default',
    _netboot_source: 'default',
    _bootmenu_source: 'default',
    _localinstall_source: 'default',
    _roles_source: 'default',
    _provision_interface_source: 'default',
    _provision_method_source: ini,
    _provision_fallback_source: ini,
    _unmanaged_bmc_users_source: 'default',
    _netboot_once_source: 'default',
    _disklayout_source: 'default',
    _loader_source: 'default',
    _trust_source: 'default',
    _root_format_source: 'default',
    _variables_source: {},
    _kerneloptions: '',
    _kerneloptions_source: 'default'
  }
}
