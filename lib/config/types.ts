import type { User } from '../auth/roles.js'

/** What the ini says of a server that svcd configures; commands are a program and its arguments. */
export interface Managed {
  /** The main file. */
  readonly config: string
  /** Directory of further files, where the server has any. */
  readonly directory: string
  /** Command that checks a file; its path is put behind it. */
  readonly check: readonly string[]
  /** Command that puts new files in force; empty: the control command. */
  readonly reload: readonly string[]
  /** Run with start, stop, restart, reload or status, and the name of the service. */
  readonly control: readonly string[]
  readonly service: string
  /** Milliseconds. */
  readonly gather: number
}

/**
 * The ini, read once, checked whole, frozen (rules 7.1, 7.2). Paths are absolute, durations in
 * milliseconds, sizes in bytes. Keys carry the ini's names.
 */
export interface Config {
  /** The ini file itself. */
  readonly file: string
  readonly http: {
    readonly listen: { readonly address: string; readonly port: number }
    /** Node-facing URL without a trailing slash; `http://<controller address>:<port>` when the ini's is empty. */
    readonly url: string
    /** CIDRs. */
    readonly trusted_proxies: readonly string[]
    readonly max_body: number
  }
  readonly controller: {
    readonly name: string
    /** The listen address when the ini's is empty. */
    readonly address: string
  }
  readonly paths: {
    readonly state: string
    readonly templates: string
    readonly files: string
    /** Relative to the ini's directory like every path. */
    readonly roles: string
    readonly scripts: string
  }
  readonly image: {
    readonly directory: string
    readonly packer: 'auto' | 'system' | 'builtin'
    readonly compressor: 'zstd' | 'pigz' | 'none'
    /** Patterns of paths from the root of an image. */
    readonly exclude: readonly string[]
    readonly initramfs: boolean
    readonly grace: number
    readonly time_limit: number
  }
  readonly ssh: {
    /** Empty: ssh/id_ed25519 in the state directory. */
    readonly key: string
    readonly port: number
    readonly parallel: number
    readonly time_limit: number
  }
  readonly jobs: { readonly parallel: number }
  readonly auth: { readonly token_lifetime: number; readonly node_token_lifetime: number }
  readonly users: readonly User[]
  readonly cluster: {
    readonly name: string
    readonly ntp_server: string
    readonly technical_contacts: string
    readonly debug: boolean
    readonly provision_method: string
    readonly provision_fallback: string
  }
  readonly boot: {
    readonly manual: 'networks' | 'any' | 'none'
    readonly dynamic_nodes: boolean
    readonly snmp_detection: boolean
    /** Empty: none. */
    readonly ipxe_directory: string
    /** Names of the iPXE binaries, by architecture. */
    readonly bios: string
    readonly efi_x64: string
    readonly efi_arm64: string
  }
  readonly kickstart: { readonly rootpw: string }
  readonly node: { readonly verify_certificate: boolean }
  readonly torrent: {
    /** Empty: torrent is off. */
    readonly tracker: string
    readonly whitelist: string
    /** A program and its arguments; empty: none. */
    readonly tracker_reload: readonly string[]
    readonly seeder: 'none' | 'transmission' | 'aria2'
    readonly seeder_url: string
    readonly seeder_secret: string
    readonly seeder_watch: string
  }
  /** Empty paths, commands and names: the server's usual ones (services/). */
  readonly dhcp: Managed & {
    readonly server: 'none' | 'isc' | 'kea' | 'dnsmasq'
    readonly control_socket: string
    readonly lease_file: string
    readonly lease_time: number
    readonly interfaces: readonly string[]
    readonly tftp_server: string
  }
  readonly dns: Managed & { readonly server: 'none' | 'bind' | 'dnsmasq' }
  readonly monitor: { readonly disk_free: number; readonly loop_delay: number; readonly queue: number }
  readonly log: {
    readonly level: 'error' | 'warn' | 'info' | 'debug'
    readonly audit_size: number
    readonly audit_keep: number
  }
}
