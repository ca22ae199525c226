import type { DataOf } from '../base/variables.js'
import type { Config } from '../config/types.js'
import type { consoleTemplates } from './consoles/variables.js'
import type { dhcpTemplates } from './dhcp/variables.js'
import type { dnsTemplates } from './dns/variables.js'
import type { tftpTemplates } from './tftp/variables.js'

/** How a running server takes a changed file. */
export type ReloadKind = 'reload' | 'restart'

export interface RenderedFile {
  readonly path: string
  readonly text: string
  /** Absent: everybody may read it. */
  readonly mode?: number
  /** `none`: the server reads it each time that it is asked for it. */
  readonly needs: ReloadKind | 'none'
}

/** All files of a server, and the directories that hold them. */
export interface Rendered {
  readonly files: readonly RenderedFile[]
  /** Of the files with this suffix, those that svcd wrote and no longer renders are removed. */
  readonly owned?: readonly { readonly directory: string; readonly suffix: string }[]
}

type ServiceTemplates = typeof dhcpTemplates &
  typeof dnsTemplates &
  typeof tftpTemplates &
  typeof consoleTemplates

/** Renders a template by its path in the template directory. The cluster's `variables` are added. */
export type Render = <Name extends keyof ServiceTemplates>(
  template: Name,
  data: Omit<DataOf<ServiceTemplates[Name]>, 'variables'>
) => string

/** The ini's settings of a server, with the server's usual values in place of empty ones. */
export interface ServiceSettings extends Omit<Config['dns'], 'server'> {
  readonly server: string
  readonly leaseFile: string
  /** Socket for the reload command, in place of the control command; empty: none. */
  readonly controlSocket: string
}

/** Returns the text that `body` makes from a serial, which grows with each change of the text. */
export type SerialOf = (zone: string, path: string, body: (serial: number) => string) => string

/** One kind of server: its files and how they are checked. */
export interface Backend<Data> {
  readonly name: string
  readonly defaults: Pick<ServiceSettings, 'check' | 'service'> &
    Partial<Pick<ServiceSettings, 'config' | 'directory' | 'leaseFile' | 'controlSocket'>>
  /** The command that checks a single zone, where the server has one. */
  readonly zoneCheck?: readonly string[]
  /** Returns the text of a file without its secrets, for previews and differences. */
  readonly masked?: (text: string) => string
  /** Verb of the control command for a reload; `restart` where the server cannot reload. */
  readonly reload: ReloadKind
  render(data: Data, settings: ServiceSettings, render: Render, serial: SerialOf): Rendered
  /** Returns commands (program and arguments) that check staged files, and files for these alone. */
  checks(
    settings: ServiceSettings,
    changed: readonly RenderedFile[],
    staged: (path: string) => string
  ): { readonly commands: readonly (readonly string[])[]; readonly files?: readonly RenderedFile[] }
}

/** Checks the main file alone, if it changed. */
export const checksMain: Backend<unknown>['checks'] = ({ config, check }, changed, staged) => ({
  commands: changed.some(({ path }) => path === config) ? [[...check, staged(config)]] : []
})
