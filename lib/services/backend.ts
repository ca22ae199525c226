import type { Config } from '../config/types.js'

/** What has to happen for a running server to take a changed file. */
export type Needs = 'reload' | 'restart'

/** A file as the templates make it. */
export interface RenderedFile {
  readonly path: string
  readonly text: string
  readonly mode: number
  readonly needs: Needs
}

/** Files of a directory, told by the end of their names: one of svcd's (by its first line) that is not rendered goes. */
export interface Owned {
  readonly directory: string
  readonly suffix: string
}

/** Everything that a server is to have. */
export interface Rendered {
  readonly files: readonly RenderedFile[]
  readonly owned: readonly Owned[]
}

/** The text of a template, by its name below the directory of templates. */
export type Render = (template: string, data: object) => string

/** What a managed server is run with: the ini's values, and the server's usual ones where the ini has none. */
export interface ServiceSettings extends Omit<Config['dns'], 'server'> {
  readonly server: string
  readonly leaseFile: string
  /** Where the server takes orders to reload, before the control command; empty: nowhere. */
  readonly controlSocket: string
}

/** The serial of a zone: grows whenever the zone's text, which `body` makes with a serial, is another one. */
export type SerialOf = (zone: string, path: string, body: (serial: number) => string) => string

/** One kind of server: what its files are, and how they are checked. */
export interface Backend<Data> {
  readonly name: string
  /** The usual ones on Debian. */
  readonly defaults: Pick<ServiceSettings, 'config' | 'directory' | 'check' | 'service' | 'leaseFile'> &
    Partial<Pick<ServiceSettings, 'controlSocket'>>
  /** Checks a single zone, where the server has a checker of its own for that. */
  readonly zoneCheck?: readonly string[]
  /** What the control command is told for a reload: a server that cannot is restarted. */
  readonly reload: Needs
  render(data: Data, settings: ServiceSettings, render: Render, serial: SerialOf): Rendered
  /**
   * The commands (program and arguments) that check files before they are put in force, `staged` being where a file
   * stands until then, and files for these commands alone.
   */
  checks(
    settings: ServiceSettings,
    changed: readonly RenderedFile[],
    staged: (path: string) => string
  ): { readonly commands: readonly (readonly string[])[]; readonly files: readonly RenderedFile[] }
}

export const readable = 0o644
