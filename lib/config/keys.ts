import type { Kind } from './values.js'
import * as values from './values.js'

export interface Key<T> {
  readonly kind: Kind<T>
  readonly default: string
  /** One line: the comment above the key in the shipped file. */
  readonly doc: string
  /** The value must not appear in messages. */
  readonly secret: boolean
}

/** Builds a key in two steps: how its text is read and its default, then its comment. */
const key = <T>(kind: Kind<T>, fallback = '', secret = false) => ({
  about: (doc: string): Key<T> => ({ kind, default: fallback, doc, secret })
})

const secret = <T>(kind: Kind<T>) => key(kind, '', true)

/** The keys of a managed server; `words` are the comments that differ between servers. */
function managed(words: { config: string; directory: string; reload: string; service: string }) {
  return {
    config: key(values.optionalPath).about(words.config),
    directory: key(values.optionalPath).about(words.directory),
    check: key(values.command).about(
      "Command that checks a file, with the file's path as its last argument; " +
        "empty: the server's own checker."
    ),
    reload: key(values.command).about(words.reload),
    control: key(values.command, 'systemctl').about(
      'Command that is run with start, stop, restart, reload or status, and the name of the service.'
    ),
    service: key(values.unit).about(words.service),
    gather: key(values.duration('0s', '1h'), '2s').about(
      'How long changes are gathered before they are put in force together.'
    )
  }
}

// The cluster object has these besides the controller's name (rules 1.8).
const clusterFields =
  'name ntp_server debug technical_contacts provision_method provision_fallback variables'.split(' ')

/** Every key except those of `[users]` (rules 7.4), for the parser, the shipped file and the documents. */
export const keys = {
  http: {
    listen: key(values.listen, '127.0.0.1:7050').about(
      'Where the daemon listens: address:port or [IPv6 address]:port.'
    ),
    url: key(values.origins).about(
      'URL for nodes, and after commas those of other controllers; empty: http://<controller address>:<port>.'
    ),
    trusted_proxies: key(values.cidrs).about(
      'Front servers whose X-Forwarded-For is believed: CIDRs with commas between them.'
    ),
    front_files: key(values.optionalLocation).about(
      'Internal location at which these front servers (nginx) ' +
        'serve the files directory; empty: svcd sends the files.'
    ),
    tls_certificate: key(values.optionalPath).about(
      'PEM file of a certificate and those up to its authority, for TLS on a port of its own; empty: no TLS.'
    ),
    tls_key: key(values.optionalPath).about(
      'PEM file of its private key, for svcd alone to read. When these files change, they are read anew.'
    ),
    tls_port: key(values.count(0, 65535), '7443').about(
      'Port for TLS, at the address of listen, which keeps plain http for booting machines; 0: any free port.'
    ),
    max_body: key(values.size('1k', '512m'), '64m').about('Largest request body.'),
    max_downloads: key(values.count(1, 100_000), '1000').about(
      'How many files are sent at once; nodes wait and try again when there are more.'
    ),
    max_connections_per_address: key(values.count(8, 1_000_000), '2000').about(
      'How many connections one address may have, ' +
        'loopback and trusted_proxies apart; over it idle ones are ended.'
    ),
    metrics: key(values.choice('viewer', 'open'), 'viewer').about(
      'Who may read /metrics: viewer (a user, with a token), or open (anybody who reaches the port).'
    ),
    dialect: key(values.choice('none', 'luna'), 'none').about(
      "luna: requests are read and answered as luna's command-line client expects (docs/luna.md)."
    )
  },
  controller: {
    name: key(values.name(clusterFields), 'controller').about('Name of this controller.'),
    address: key(values.optionalAddress).about(
      'Address of this controller; empty: the listen address. Needed when that is 0.0.0.0 or [::].'
    )
  },
  paths: {
    state: key(values.path, '../var').about('Objects, keys and journals.'),
    templates: key(values.path, '../templates').about('Templates of boot, install and service files.'),
    files: key(values.path, '../var/files').about('Packed images and torrents, served below /files/.'),
    roles: key(values.path, 'roles').about('Role scripts, served below /boot/roles/.'),
    scripts: key(values.path, 'scripts').about('Scripts served below /boot/scripts/.')
  },
  store: {
    medium: key(values.choice('files', 'etcd'), 'files').about(
      'Where objects are kept: files (in the state directory), or etcd (docs/controllers.md).'
    ),
    endpoints: key(values.etcdEndpoints, 'http://127.0.0.1:2379').about(
      'Members of etcd: https://host:port with commas between them; http for 127.0.0.1 and [::1] alone.'
    ),
    ca: key(values.optionalPath).about(
      'PEM file of the authorities of etcd, ' +
        "and of other controllers beside the system's; empty: the system's alone."
    ),
    cert: key(values.optionalPath).about('PEM file of the certificate that etcd asks svcd for; empty: none.'),
    key: key(values.optionalPath).about('PEM file of its private key, for svcd alone to read.'),
    user: key(values.optionalUser).about('User of etcd; empty: none.'),
    password_file: key(values.optionalPath).about(
      "File with that user's password on one line, for svcd alone to read."
    ),
    url: key(values.optionalOrigin).about(
      'Where other controllers reach this one to hand requests on; empty: [http] url.'
    ),
    prefix: key(values.keyPrefix, '/svcd/').about('What the names of all keys in etcd begin with.'),
    ttl: key(values.duration('1s', '60s'), '3s').about(
      'How long the leadership of a dead svcd lasts in etcd.'
    )
  },
  image: {
    directory: key(values.path, '../var/images').about(
      'Directories of the images. svcd touches no image outside it.'
    ),
    helper: key(values.optionalPath).about(
      "Socket of the helper for root's work. Empty: /run/svcd/helper.sock if svcd is not root, else its own."
    ),
    packer: key(values.choice('auto', 'system', 'builtin'), 'auto').about(
      'What packs images: system (tar and a compressor), builtin, or auto (system where it is installed).'
    ),
    compressor: key(values.choice('zstd', 'pigz', 'none'), 'zstd').about(
      'Compressor of the system packer: zstd, pigz (for kickstarts, which cannot unpack zstd) or none.'
    ),
    exclude: key(values.imagePaths, '/var/cache/apt/archives/*.deb, /var/cache/dnf/*').about(
      'Paths that packs leave out, from the root of an image, with commas between them; * and ? are allowed.'
    ),
    identity: key(
      values.imageFiles,
      '/etc/machine-id, /var/lib/dbus/machine-id, /etc/ssh/ssh_host_*, /var/lib/systemd/random-seed, ' +
        '/var/lib/systemd/credential.secret'
    ).about(
      "Files that no two nodes share: an installation removes the image's, grabs and pushes leave them out."
    ),
    initramfs: key(values.boolean, 'yes').about(
      "Before a pack, build an outdated initramfs by the image's own dracut or initramfs-tools: yes or no."
    ),
    sign_kernels: key(values.boolean, 'no').about(
      "Sign the kernels of packs with the site's key for Secure Boot (svcd keys secureboot make): yes or no."
    ),
    registry_auth: key(values.optionalPath).about(
      'File with the logins at registries (skopeo login --authfile), for svcd alone to read; empty: none.'
    ),
    containers_storage: key(values.optionalPath).about(
      'Storage of podman, of which any image can be imported: /var/lib/containers/storage; empty: none.'
    ),
    max_unpacked: key(values.size('1m', '100000g'), '64g').about(
      'Most bytes of a container image that is imported, packed and unpacked.'
    ),
    grace: key(values.duration('0s', '3650d'), '1d').about(
      'How long a pack that no image, tag or installing node uses is kept.'
    ),
    time_limit: key(values.duration('1s', '30d'), '2h').about(
      'Longest time for a pack, a clone, an initramfs or an import.'
    )
  },
  ssh: {
    key: key(values.optionalPath).about(
      'Private key for grabs and pushes; empty: ssh/id_ed25519 in the state directory, made at the start.'
    ),
    port: key(values.count(1, 65535), '22').about('Port of sshd on the nodes.'),
    parallel: key(values.count(1, 1000), '4').about('How many nodes of a group are pushed to at once.'),
    time_limit: key(values.duration('1s', '30d'), '1h').about(
      'Longest time for a grab, and for a push to one node.'
    )
  },
  jobs: {
    parallel: key(values.count(1, 100), '2').about('How many packs, clones, grabs and pushes run at once.')
  },
  control: {
    parallel: key(values.count(1, 1000), '20').about(
      'How many BMCs are spoken to at once by requests for many nodes, and as many by those for one.'
    ),
    delay: key(values.duration('0s', '10m'), '1s').about(
      'Nodes are switched on in batches: no more than `parallel` of them begin in any time of this length.'
    ),
    time_limit: key(values.duration('1s', '10m'), '15s').about('Longest time that one BMC may take.'),
    soft_limit: key(values.duration('1s', '1h'), '2m').about(
      'Longest time that a system may take to switch its machine off when it is asked to.'
    ),
    ipmi_port: key(values.count(1, 65535), '623').about('UDP port of IPMI on the BMCs.'),
    redfish_port: key(values.count(1, 65535), '443').about('TCP port of Redfish on the BMCs.'),
    ca_file: key(values.optionalPath).about(
      'Certificates (PEM) of the CAs that sign those of the BMCs; empty: the public CAs that Node knows.'
    )
  },
  auth: {
    token_lifetime: key(values.duration('1s', '3650d'), '1h').about('Lifetime of the tokens of users.'),
    node_token_lifetime: key(values.duration('1s', '3650d'), '4h').about(
      'Lifetime of the tokens of installing nodes.'
    ),
    running_token_lifetime: key(values.duration('1s', '3650d'), '90d').about(
      'Lifetime of the tokens of running nodes, which fetch their files and get a new one in time.'
    ),
    ldap_url: key(values.ldapUrls).about(
      'Servers of an LDAP directory whose users log in too (docs/logins.md), with commas between them.'
    ),
    ldap_plain: key(values.boolean, 'no').about(
      'WARNING: yes sends passwords in the clear to ldap://; no: by StartTLS, but for 127.0.0.1 and [::1].'
    ),
    ldap_ca_certificate: key(values.optionalPath).about(
      "PEM file of the authorities of these servers, beside the system's; empty: the system's alone."
    ),
    ldap_bind_dn: key(values.text).about('DN as which svcd searches; empty: it searches without a name.'),
    ldap_bind_password_file: key(values.optionalPath).about(
      'File with the password of this DN on one line, for svcd alone to read.'
    ),
    ldap_base: key(values.text).about('DN below which users and groups are, such as dc=example,dc=org.'),
    ldap_filter: key(
      values.ldapFilter('user'),
      '(|(&(objectClass=posixAccount)(uid={user}))' +
        '(&(objectCategory=person)(objectClass=user)(sAMAccountName={user})))'
    ).about('Filter that finds the entry of {user}, whose name is its uid or sAMAccountName.'),
    ldap_group_filter: key(
      values.ldapFilter('dn', 'user'),
      '(|(member={dn})(uniqueMember={dn})(memberUid={user}))'
    ).about("Filter that finds the user's groups, beside memberOf; empty: memberOf alone."),
    ldap_roles: key(values.groupRoles).about(
      'Roles by group: ROLE=GROUP | ROLE=GROUP. A GROUP is a DN, a cn, or * for all; no match: no log-in.'
    ),
    oidc_issuer: key(values.issuer).about(
      'Issuer of an OpenID provider whose users log in too (docs/logins.md); empty: none.'
    ),
    oidc_name: key(values.text, 'single sign-on').about('Name of the provider on the button of the page.'),
    oidc_ca_certificate: key(values.optionalPath).about(
      "PEM file of the authorities of the provider, beside the system's; empty: the system's alone."
    ),
    oidc_client_id: key(values.text).about('Name of svcd at the provider.'),
    oidc_client_secret_file: key(values.optionalPath).about(
      "File with svcd's secret at the provider on one line, for svcd alone to read; empty: a public client."
    ),
    oidc_url: key(values.origins).about(
      'URLs at which browsers open the page, each with a / a redirect URI at the provider; empty: [http] url.'
    ),
    oidc_scopes: key(values.scopes, 'openid profile').about('Scopes that svcd asks for.'),
    oidc_user_claim: key(values.claim, 'preferred_username').about("Claim with the user's name."),
    oidc_groups_claim: key(values.claim, 'groups').about(
      "Claim with the user's groups, also inside of another: realm_access.roles."
    ),
    oidc_roles: key(values.groupRoles).about(
      'Roles by group, as in ldap_roles; a GROUP is a value of the groups claim, or * for all users.'
    )
  },
  cluster: {
    name: key(values.name(), 'cluster').about('Name of the cluster.'),
    ntp_server: key(values.optionalHost).about('NTP server of all nodes, where their network names none.'),
    technical_contacts: key(values.text).about('Who answers questions about this cluster.'),
    debug: key(values.boolean, 'no').about('Debug flag of the cluster object; yes logs at level debug.'),
    provision_method: key(values.choice('torrent', 'http'), 'torrent').about(
      'How nodes fetch their image: torrent or http.'
    ),
    provision_fallback: key(values.choice('torrent', 'http'), 'http').about(
      'How nodes fetch their image when that fails: torrent or http.'
    )
  },
  boot: {
    loader: key(values.choice('ipxe', 'grub'), 'ipxe').about(
      'What UEFI firmware starts: ipxe, or grub behind shim for Secure Boot (docs/secure-boot.md).'
    ),
    manual: key(values.choice('networks', 'any', 'none'), 'networks').about(
      'Who may use the boot pages that assign nodes: ' +
        'networks (the configured ones and loopback), any or none.'
    ),
    takeover: key(values.choice('yes', 'released'), 'yes').about(
      'WARNING: yes lets any machine take any node, with its passwords; ' +
        'released: nodes that an admin has released.'
    ),
    new_nodes: key(values.count(0, 1_000_000), '300').about(
      'How many nodes these pages make in a minute at most; 0: none.'
    ),
    dynamic_nodes: key(values.boolean, 'no').about(
      'Serve install scripts to nodes without a fixed address, by the address that DHCP gave them: yes or no.'
    ),
    snmp_detection: key(values.boolean, 'no').about(
      'Recognise an unknown node by the switch port that its MAC is at: yes or no.'
    ),
    by_serial: key(values.boolean, 'no').about(
      'A machine with the serial number or UUID of a node without a MAC becomes that node: yes or no.'
    ),
    unknown_age: key(values.duration('1m', '365d'), '7d').about(
      'How long svcd lists a machine of no node after its last request (svcctl unknown list).'
    ),
    ipxe_directory: key(values.optionalPath).about(
      'Directory of iPXE binaries to serve below /boot/; empty: none.'
    ),
    bios: key(values.fileName, 'undionly.kpxe').about(
      'iPXE for machines that boot by BIOS: its name on the TFTP server.'
    ),
    efi_x64: key(values.fileName, 'ipxe.efi').about(
      'iPXE for UEFI x86-64: its name on the TFTP server, and below /boot/ for UEFI HTTP boot.'
    ),
    efi_arm64: key(values.fileName, 'ipxe-arm64.efi').about(
      'iPXE for UEFI arm64: its name on the TFTP server, and below /boot/ for UEFI HTTP boot.'
    )
  },
  kickstart: {
    rootpw: secret(values.optionalCrypt).about(
      'Password of root on nodes, as a crypt(3) hash; empty locks the account.'
    )
  },
  node: {
    verify_certificate: key(values.boolean, 'yes').about(
      'Nodes verify the certificate when [http] url is https: yes or no.'
    )
  },
  torrent: {
    tracker: key(values.optionalTracker).about('Announce URL of the tracker; empty turns torrent off.'),
    whitelist: key(values.optionalPath).about(
      'File that svcd keeps, of the info hashes that the tracker admits (opentracker needs one); empty: none.'
    ),
    tracker_reload: key(values.command).about(
      'Command that makes the tracker read that file again, such as systemctl reload opentracker.'
    ),
    seeder: key(values.choice('none', 'transmission', 'aria2'), 'none').about(
      'Program that seeds the images: none, transmission or aria2.'
    ),
    seeder_url: key(values.optionalUrl).about(
      'RPC of the seeder: http://127.0.0.1:9091/transmission/rpc, or http://127.0.0.1:6800/jsonrpc for aria2.'
    ),
    seeder_secret: secret(values.text).about(
      "user:password of transmission's RPC, or the secret token of aria2's RPC; empty: none."
    ),
    seeder_watch: key(values.optionalPath).about(
      'Watch directory of transmission, instead of its RPC. Its download-dir must be the files directory.'
    )
  },
  dhcp: {
    server: key(values.choice('none', 'isc', 'kea', 'dnsmasq'), 'none').about(
      'DHCP server that svcd configures: none, isc (dhcpd), kea or dnsmasq.'
    ),
    ...managed({
      config:
        "File that svcd writes; empty: the server's usual one on Debian, " +
        '/etc/dnsmasq.d/svcd-dhcp.conf for dnsmasq.',
      directory: 'Directory of a file for each machine, for dnsmasq alone; empty: /var/lib/misc/svcd-dhcp.',
      reload:
        'Command that puts a new file in force; empty: the control socket of kea, else the control command.',
      service: 'Name of the service; empty: isc-dhcp-server, kea-dhcp4-server or dnsmasq.'
    }),
    control_socket: key(values.optionalPath).about(
      'Control socket of kea, by which svcd reloads it; empty: /run/kea/kea4-ctrl-socket.'
    ),
    lease_file: key(values.optionalPath).about(
      "File of leases, read for [boot] dynamic_nodes; empty: the server's usual one on Debian."
    ),
    lease_time: key(values.duration('2m', '365d'), '1h').about('Lifetime of leases.'),
    interfaces: key(values.interfaces).about(
      'Interfaces that kea and dnsmasq serve, with commas between them; empty: all.'
    ),
    tftp_server: key(values.optionalIpv4).about(
      'TFTP server of the iPXE binaries (next-server); empty: the controller address.'
    )
  },
  dns: {
    server: key(values.choice('none', 'bind', 'dnsmasq'), 'none').about(
      'DNS server that svcd configures: none, bind or dnsmasq.'
    ),
    ...managed({
      config:
        'File that svcd writes; empty: /etc/bind/svcd.conf, ' +
        'which named.conf includes, or /etc/dnsmasq.d/svcd-dns.conf.',
      directory: 'Directory of the zone or hosts files; empty: /var/lib/bind/svcd or /var/lib/misc/svcd-dns.',
      reload: 'Command that puts new files in force; empty: the control command.',
      service: 'Name of the service; empty: named or dnsmasq.'
    })
  },
  tftp: {
    server: key(values.choice('none', 'dnsmasq', 'tftpd-hpa'), 'none').about(
      'TFTP server of shim and GRUB, whose tree svcd keeps: none, dnsmasq or tftpd-hpa.'
    ),
    ...managed({
      config: 'File that svcd writes for dnsmasq; empty: /etc/dnsmasq.d/svcd-tftp.conf.',
      directory: 'Directory of the tree; empty: tftp in the state directory.',
      reload: 'Command that puts a new file in force; empty: the control command.',
      service: 'Name of the service; empty: dnsmasq or svcd-tftp.'
    }),
    shim_x64: key(values.path, '/usr/lib/shim/shimx64.efi.signed').about('Shim for x86-64.'),
    grub_x64: key(values.path, '/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed').about(
      'GRUB for x86-64, signed, with TFTP built in: what shim starts.'
    ),
    mok_x64: key(values.path, '/usr/lib/shim/mmx64.efi.signed').about(
      'MokManager for x86-64, with which a person enrols keys of the site; it may be missing.'
    ),
    shim_arm64: key(values.path, '/usr/lib/shim/shimaa64.efi.signed').about(
      'Shim for arm64; where it is missing, no arm64 machine boots by GRUB.'
    ),
    grub_arm64: key(values.path, '/usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed').about(
      'GRUB for arm64.'
    ),
    mok_arm64: key(values.path, '/usr/lib/shim/mmaa64.efi.signed').about('MokManager for arm64.')
  },
  consoles: {
    enabled: key(values.boolean, 'no').about(
      'Whether svcd configures conmand for the serial consoles of nodes with a BMC (docs/consoles.md).'
    ),
    ...managed({
      config: 'File that svcd writes, with passwords of BMCs; empty: conman.conf beside the logs.',
      directory: 'The logs are in consoles below this directory; empty: the state directory.',
      reload: 'Command that puts a new file in force; empty: the control command, with restart.',
      service: 'Name of the service; empty: svcd-consoles.'
    }),
    port: key(values.count(1, 65535), '7891').about('TCP port of conmand, on the loopback address alone.'),
    log_size: key(values.size('16k', '16m'), '1m').about(
      'Size at which the log of a node is rotated; one older file is kept.'
    ),
    log_total: key(values.size('1m', '1024g'), '2g').about(
      'Most bytes of all logs of consoles: with many nodes, each is rotated earlier.'
    )
  },
  rehearsal: {
    memory: key(values.size('512m', '1024g'), '4g').about(
      'Memory of the virtual machine of a rehearsal, at most (svcctl node rehearse).'
    ),
    cpus: key(values.count(1, 64), '2').about('Its processors.'),
    time_limit: key(values.duration('1m', '1d'), '20m').about('Longest time for a rehearsal.')
  },
  trust: {
    ek_ca: key(values.optionalPath).about(
      'PEM file of authorities of TPM makers: a TPM that one vouches for is enrolled by itself; empty: none.'
    ),
    secureboot: key(values.choice('required', 'any'), 'required').about(
      'required: a machine without Secure Boot is not trusted; any: it is, if its firmware was accepted so.'
    )
  },
  monitor: {
    disk_free: key(values.size('1k', '1024g'), '64m').about(
      'svcd has failed when the disk of the state or of the files has less free space than this.'
    ),
    loop_delay: key(values.duration('1s', '1h'), '1s').about(
      'svcd has failed when its event loop is later than this, on average over ten seconds.'
    ),
    queue: key(values.count(1, 1_000_000), '500').about(
      'svcd has failed when more requests than this wait for a pack, a clone, a grab or a push.'
    )
  },
  log: {
    level: key(values.choice('error', 'warn', 'info', 'debug'), 'info').about(
      'Least level logged: error, warn, info or debug.'
    ),
    audit_size: key(values.size('64k', '1024m'), '10m').about(
      'The audit logs in the state directory, audit.log and audit-machines.log, are rotated at this size.'
    ),
    audit_keep: key(values.count(0, 1000), '10').about('How many rotated files of each are kept.')
  }
}

/** The table without its literal types, for iteration. */
export const table: Readonly<Record<string, Readonly<Record<string, Key<unknown>>>>> = keys

/** The comment of `[users]` in the shipped file; its keys are the users' names. */
export const usersDoc = [
  'Users, one a line: name = role hash. Roles: ' +
    'admin (may do everything), operator (power, reinstall, consoles),',
  'viewer (may read), the last two also for groups of nodes alone (operator:compute,gpu). `svcd passwd NAME`',
  'prints the line. While no user stands here, ' +
    'admin logs in with the password in the file admin-password of the state.'
]
