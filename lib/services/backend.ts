import type { Config } from '../config/types.js'
import type { DataOf } from '../variables.js'
import type { dhcpTemplates } from './dhcp/variables.js'
import type { dnsTemplates } from './dns/variables.js'

/** What makes a running server take a changed file. */
export type Needs = 'reload' | 'restart'

/** A file as the templates make it. */
export interface RenderedFile {
  readonly path: string
  readonly text: string
  readonly mode: number
  readonly needs: Needs
}

/**
 * A directory, and the suffix of svcd's files in it. A file that svcd wrote (its first line says so) and no longer
 * renders is removed.
 */
export interface Owned {
  readonly directory: string
  readonly suffix: string
}

/** Everything that a server has to have. */
export interface Rendered {
  readonly files: readonly RenderedFile[]
  readonly owned: readonly Owned[]
}

type ServiceTemplates = typeof dhcpTemplates & typeof dnsTemplates

/** The text of a template, by its name below the directory of templates; the variables of the cluster come to it by themselves. */
export type Render = <Name extends keyof ServiceTemplates>(
  template: Name,
  data: Omit<DataOf<ServiceTemplates[Name]>, 'variables'>
) => string

/**
 * The settings of a server that svcd configures: the ini's values, and the server's usual ones in place of empty
 * ones.
 */
export interface ServiceSettings extends Omit<Config['dns'], 'server'> {
  readonly server: string
  readonly leaseFile: string
  /** The socket on which the server is told to reload, rather than by the control command; empty: none. */
  readonly controlSocket: string
}

/** The text of a zone, which `body` makes from a serial. The serial grows whenever the text changes. */
export type SerialOf = (zone: string, path: string, body: (serial: number) => string) => string

/** One kind of server: what its files are, and how they are checked. */
export interface Backend<Data> {
  readonly name: string
  /** The usual values on Debian. */
  readonly defaults: Pick<ServiceSettings, 'config' | 'directory' | 'check' | 'service' | 'leaseFile'> &
    Partial<Pick<ServiceSettings, 'controlSocket'>>
  /** The command that checks a single zone, where the server has one. */
  readonly zoneCheck?: readonly string[]
  /** What the control command is told for a reload: a server that cannot is restarted. */
  readonly reload: Needs
  render(data: Data, settings: ServiceSettings, render: Render, serial: SerialOf): Rendered
  /**
   * The commands (program and arguments) that check the changed files before they are put in force, and files that
   * these commands alone read. `staged` gives the path at which a file stands until then.
   */
  checks(
    settings: ServiceSettings,
    changed: readonly RenderedFile[],
    staged: (path: string) => string
  ): { readonly commands: readonly (readonly string[])[]; readonly files: readonly RenderedFile[] }
}

export const readable = 0o644
