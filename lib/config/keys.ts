import type { Kind } from './values.js'
import * as values from './values.js'

/** One key of the ini: how its text is read, the text that stands for an absent key, and what it is for. */
export interface Key<T> {
  readonly kind: Kind<T>
  readonly default: string
  /** One line: the comment above the key in the shipped file. */
  readonly doc: string
  /** The value is never repeated in a message. */
  readonly secret: boolean
}

function key<T>(kind: Kind<T>, fallback: string, doc: string): Key<T> {
  return { kind, default: fallback, doc, secret: false }
}

function secret<T>(kind: Kind<T>, fallback: string, doc: string): Key<T> {
  return { kind, default: fallback, doc, secret: true }
}

// The cluster object carries these beside the controller's name (rules 1.8).
const clusterFields = [
  'name',
  'ntp_server',
  'debug',
  'technical_contacts',
  'provision_method',
  'provision_fallback'
]

/**
 * Every key but those of `[users]` (rules 7.4), in the shipped file's order. Reading, the shipped
 * and the installed file and the documents come from this table.
 */
export const keys = {
  http: {
    listen: key(
      values.listen,
      '127.0.0.1:7050',
      'Where the daemon listens: address:port or [IPv6 address]:port.'
    ),
    url: key(
      values.optionalOrigin,
      '',
      'URL under which nodes reach the daemon; empty: http://<controller address>:<port>.'
    ),
    trusted_proxies: key(
      values.cidrs,
      '',
      'CIDRs of front servers whose X-Forwarded-For is believed, with commas between them.'
    ),
    max_body: key(values.size('1k', '512m'), '64m', 'Largest request body.')
  },
  controller: {
    name: key(values.name(clusterFields), 'controller', 'Name of this controller.'),
    address: key(
      values.optionalAddress,
      '',
      'Address of this controller; empty: the listen address. Needed when that is 0.0.0.0 or [::].'
    )
  },
  paths: {
    state: key(values.path, '../var', 'Objects, keys and journals.'),
    templates: key(values.path, '../templates', 'Templates of boot, install and service files.'),
    files: key(values.path, '../var/files', 'Packed images and torrents, served below /files/.'),
    roles: key(values.path, 'roles', 'Role scripts, served below /boot/roles/.'),
    scripts: key(values.path, 'scripts', 'Scripts served below /boot/scripts/.')
  },
  image: {
    directory: key(values.path, '../var/images', 'Image trees; paths of images outside it are not touched.'),
    packer: key(
      values.choice('auto', 'system', 'builtin'),
      'auto',
      'What packs images: system (tar and a compressor), builtin, or auto: system where it is installed.'
    ),
    compressor: key(
      values.choice('zstd', 'pigz', 'none'),
      'zstd',
      'What compresses for the system packer: zstd, pigz (kickstarts cannot unpack zstd) or none.'
    ),
    exclude: key(
      values.imagePaths,
      '/var/cache/apt/archives/*.deb, /var/cache/dnf/*',
      'What is left out of packs: paths from the root of an image, * and ? allowed, with commas between them.'
    ),
    initramfs: key(
      values.boolean,
      'yes',
      "Build the initramfs anew before each pack, by the image's own dracut or initramfs-tools: yes or no."
    ),
    grace: key(
      values.duration('0s', '3650d'),
      '1d',
      'How long a pack that no image, tag or installing node uses is kept.'
    ),
    time_limit: key(values.duration('1s', '30d'), '2h', 'Longest time for a pack, a clone or an initramfs.')
  },
  ssh: {
    key: key(
      values.optionalPath,
      '',
      'Private key for grabs and pushes; empty: ssh/id_ed25519 in the state directory, made when first used.'
    ),
    port: key(values.count(1, 65535), '22', 'Port of sshd on the nodes.'),
    parallel: key(values.count(1, 1000), '4', 'How many nodes of a group are pushed to at once.'),
    time_limit: key(
      values.duration('1s', '30d'),
      '1h',
      'Longest time for a grab, and for a push to one node.'
    )
  },
  jobs: {
    parallel: key(values.count(1, 100), '2', 'How many packs, clones, grabs and pushes run at once.')
  },
  auth: {
    token_lifetime: key(values.duration('1s', '3650d'), '1h', 'Lifetime of the tokens of users.'),
    node_token_lifetime: key(
      values.duration('1s', '3650d'),
      '4h',
      'Lifetime of the tokens of installing nodes.'
    )
  },
  cluster: {
    name: key(values.name(), 'cluster', 'Name of the cluster.'),
    ntp_server: key(values.optionalHost, '', 'NTP server of all nodes, where their network names none.'),
    technical_contacts: key(values.text, '', 'Whom to ask about this cluster.'),
    debug: key(values.boolean, 'no', 'Debug flag of the cluster object.'),
    provision_method: key(
      values.choice('torrent', 'http'),
      'torrent',
      'How nodes fetch their image: torrent or http.'
    ),
    provision_fallback: key(
      values.choice('torrent', 'http'),
      'http',
      'How they fetch it when that fails: torrent or http.'
    )
  },
  boot: {
    manual: key(
      values.choice('networks', 'any', 'none'),
      'networks',
      'Who may use the boot pages that assign nodes: networks (configured ones and loopback), any or none.'
    ),
    dynamic_nodes: key(
      values.boolean,
      'no',
      'Serve install scripts to nodes without a fixed address, by the address DHCP gave them.'
    ),
    snmp_detection: key(
      values.boolean,
      'no',
      'Find unknown nodes by asking switches for the port of their MAC.'
    ),
    ipxe_directory: key(
      values.optionalPath,
      '',
      'Directory of iPXE binaries to serve below /boot/; empty: none.'
    ),
    bios: key(
      values.fileName,
      'undionly.kpxe',
      'iPXE for machines that boot by BIOS: its name on the TFTP server.'
    ),
    efi_x64: key(
      values.fileName,
      'ipxe.efi',
      'iPXE for UEFI x86-64: its name on the TFTP server, and below /boot/ for UEFI HTTP boot.'
    ),
    efi_arm64: key(values.fileName, 'ipxe-arm64.efi', 'iPXE for UEFI arm64, likewise.')
  },
  kickstart: {
    rootpw: secret(
      values.optionalCrypt,
      '',
      "crypt(3) hash of root's password on nodes; empty locks the account."
    )
  },
  node: {
    verify_certificate: key(
      values.boolean,
      'yes',
      'Nodes verify the certificate when the URL above is https: yes or no.'
    )
  },
  torrent: {
    tracker: key(values.optionalTracker, '', 'Announce URL of the tracker; empty turns torrent off.'),
    whitelist: key(
      values.optionalPath,
      '',
      'File of info hashes that the tracker admits, kept by svcd (opentracker needs one); empty: none.'
    ),
    tracker_reload: key(
      values.command,
      '',
      'Command that makes the tracker read that file again, such as systemctl reload opentracker.'
    ),
    seeder: key(
      values.choice('none', 'transmission', 'aria2'),
      'none',
      'Who seeds the images: none, transmission or aria2.'
    ),
    seeder_url: key(
      values.optionalUrl,
      '',
      'RPC of the seeder: http://127.0.0.1:9091/transmission/rpc, or http://127.0.0.1:6800/jsonrpc of aria2.'
    ),
    seeder_secret: secret(
      values.text,
      '',
      "user:password of transmission's RPC, or the secret token of aria2's; empty: none."
    ),
    seeder_watch: key(
      values.optionalPath,
      '',
      'Watch directory of transmission, instead of its RPC; its download-dir must be the files directory.'
    )
  },
  dhcp: {
    server: key(
      values.choice('none', 'isc', 'kea', 'dnsmasq'),
      'none',
      'DHCP server that svcd configures: none, isc (dhcpd), kea or dnsmasq.'
    ),
    config: key(
      values.optionalPath,
      '',
      'File that svcd writes for it; empty: where Debian has it, /etc/dnsmasq.d/svcd-dhcp.conf for dnsmasq.'
    ),
    directory: key(
      values.optionalPath,
      '',
      'Directory of its host files (dnsmasq only); empty: /var/lib/misc/svcd-dhcp.'
    ),
    check: key(
      values.command,
      '',
      "Command that checks a file, whose path is put behind it; empty: the server's own checker."
    ),
    reload: key(
      values.command,
      '',
      'Command that puts a new file in force (a restart for isc and dnsmasq); empty: the socket of kea, or control.'
    ),
    control: key(
      values.command,
      'systemctl',
      'Command that is run with start, stop, restart, reload or status, and the name of the service.'
    ),
    service: key(
      values.unit,
      '',
      'Name of the service; empty: isc-dhcp-server, kea-dhcp4-server or dnsmasq.'
    ),
    gather: key(
      values.duration('0s', '1h'),
      '2s',
      'How long changes are gathered before they are put in force.'
    ),
    control_socket: key(
      values.optionalPath,
      '',
      'Control socket that kea opens and is reloaded through; empty: /run/kea/kea4-ctrl-socket.'
    ),
    lease_file: key(
      values.optionalPath,
      '',
      'File of leases; empty: where Debian has it. Read for [boot] dynamic_nodes.'
    ),
    lease_time: key(values.duration('2m', '365d'), '1h', 'Lifetime of leases.'),
    interfaces: key(
      values.interfaces,
      '',
      'Interfaces that kea and dnsmasq serve, with commas between them; empty: all.'
    ),
    tftp_server: key(
      values.optionalIpv4,
      '',
      'TFTP server of the iPXE binaries (next-server); empty: the controller address.'
    )
  },
  dns: {
    server: key(
      values.choice('none', 'bind', 'dnsmasq'),
      'none',
      'DNS server that svcd configures: none, bind or dnsmasq.'
    ),
    config: key(
      values.optionalPath,
      '',
      'File written for it; empty: /etc/bind/svcd.conf, to be included, or /etc/dnsmasq.d/svcd-dns.conf.'
    ),
    directory: key(
      values.optionalPath,
      '',
      'Directory of its zone or hosts files; empty: /var/lib/bind/svcd or /var/lib/misc/svcd-dns.'
    ),
    check: key(
      values.command,
      '',
      "Command that checks the file, whose path is put behind it; empty: the server's own checker."
    ),
    reload: key(
      values.command,
      '',
      'Command that puts new files in force (a restart for dnsmasq); empty: the control command below.'
    ),
    control: key(
      values.command,
      'systemctl',
      'Command that is run with start, stop, restart, reload or status, and the name of the service.'
    ),
    service: key(values.unit, '', 'Name of the service; empty: named or dnsmasq.'),
    gather: key(
      values.duration('0s', '1h'),
      '2s',
      'How long changes are gathered before they are put in force.'
    )
  },
  monitor: {
    disk_free: key(
      values.size('1k', '1024g'),
      '64m',
      'Less free space than this on the disk of the state or of the files is a failure of svcd.'
    ),
    loop_delay: key(
      values.duration('1s', '1h'),
      '1s',
      'So is a mean delay of its event loop above this, over ten seconds.'
    ),
    queue: key(
      values.count(1, 1_000_000),
      '500',
      'So are more requests than this that wait for a pack, a clone, a grab or a push.'
    )
  },
  log: {
    level: key(
      values.choice('error', 'warn', 'info', 'debug'),
      'info',
      'Least level logged: error, warn, info or debug.'
    ),
    audit_size: key(
      values.size('64k', '1024m'),
      '10m',
      'The audit log, audit.log in the state directory, is rotated at this size.'
    ),
    audit_keep: key(values.count(0, 1000), '10', 'How many rotated audit logs are kept.')
  }
}

/** What the table's keys are read to. */
export type Values = {
  [S in keyof typeof keys]: {
    [K in keyof (typeof keys)[S]]: (typeof keys)[S][K] extends Key<infer T> ? T : never
  }
}

/** The table without its literal types, for walking. */
export const table: Readonly<Record<string, Readonly<Record<string, Key<unknown>>>>> = keys

/** The section of users, whose keys are their names: the comment in the shipped file. */
export const usersDoc = [
  'Users, one per line: name = role hash. Roles: admin (everything), viewer (reads). `svcd passwd NAME --stdin`',
  'prints the line. While there is none, "admin" is valid with the password in admin-password in the state directory.'
]
