import type { InstallBmc, InstallData, InstallInterface } from '../../lib/boot/install-data.js'
import { ofMachine } from '../../lib/image/transfers.js'

/**
 * An interface of a node as the install script sees it; the boot interface unless `changes` say otherwise.
 */
export function installInterface(changes: Partial<InstallInterface> = {}): InstallInterface {
  return {
    interface: 'BOOTIF',
    network: 'cluster',
    ipaddress: '10.141.0.1',
    prefixlen: 16,
    netmask: '255.255.0.0',
    gateway: '10.141.255.254',
    routes: [],
    nameserver: '10.141.255.253',
    ns_hostname: 'controller',
    domain: 'cluster',
    ntp_server: '10.141.255.252',
    macaddress: '52:54:00:00:00:01',
    options: '',
    provision: true,
    bmc: false,
    ...changes
  }
}

export function installBmc(changes: Partial<InstallBmc> = {}): InstallBmc {
  return {
    name: 'compute',
    mgmtchannel: 1,
    netchannel: 2,
    userid: 3,
    username: 'operator',
    password: 'it\'s $HOME "x"',
    unmanaged_bmc_users: '',
    ipaddress: '10.148.0.1',
    netmask: '255.255.0.0',
    gateway: '10.148.255.254',
    vlan: '',
    ntp_server: '',
    ...changes
  }
}

/** A text as the BMC is given it: its bytes as numbers, filled up with zeros. */
export const bmcBytes = (text: string, size: number): string =>
  [...Buffer.concat([Buffer.from(text), Buffer.alloc(size)]).subarray(0, size)].join(' ')

/** The smallest node that installs: one interface, no scripts, an image by http. */
export function installData(changes: Partial<InstallData> = {}): InstallData {
  return {
    node: 'node001',
    hostname: 'node001.cluster',
    domain: 'cluster',
    group: 'compute',
    comment: '',
    vendor: '',
    assettag: '',
    url: 'http://127.0.0.1:7050',
    urls: [changes.url ?? 'http://127.0.0.1:7050'],
    library: '',
    api_protocol: 'http',
    api_address: '127.0.0.1',
    api_port: 7050,
    token: 'the.node.token',
    insecure: false,
    service: false,
    osimage: 'rocky9',
    osimagetag: 'default',
    distribution: 'redhat',
    imagefile: 'rocky9.tar.gz',
    imagesum: '',
    imagesize: 0,
    root: false,
    torrent: '',
    identity: [],
    foreign: ofMachine,
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    kernelversion: '5.14.0',
    kerneloptions: '',
    provision_method: 'http',
    provision_fallback: 'http',
    provision_interface: 'BOOTIF',
    rescue: false,
    localinstall: false,
    netboot: true,
    bootmenu: false,
    setupbmc: false,
    bmc: false,
    interfaces: [installInterface()],
    network: '',
    prescript: '',
    partscript: '',
    postscript: '',
    roles: [],
    missing_roles: [],
    secrets: [],
    secret_access: {},
    layout_secrets: [],
    sealed_secrets: [],
    ntp_server: '',
    variables: {},
    files: false,
    files_token: 'the.running.token',
    rootpw: '',
    masked: false,
    ...changes
  }
}

export function base64(text: string | Buffer): string {
  return Buffer.from(text).toString('base64')
}
