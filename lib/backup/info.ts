import { isObject } from '../base/json.js'

/** The first entry of a backup. */
export const INFO = 'backup.json'

/** The format of backups of this program. */
const FORMAT = 1

/** Metadata of a backup. */
export interface BackupInfo {
  /** The layout version of its state. */
  readonly version: number
  /** The release of svcd that made it. */
  readonly release: string
  /** Whether it has the packed files and directories of the images. */
  readonly images: boolean
}

/** Returns the text of the entry. */
export const infoText = (info: BackupInfo): string =>
  `${JSON.stringify({ format: FORMAT, made: new Date().toISOString(), ...info }, null, 2)}\n`

/** Parses the entry. Throws Error for another format, with the release that made it. */
export function parseInfo(text: string): BackupInfo {
  const json: unknown = JSON.parse(text)
  const { format, version, release, images } = isObject(json) ? json : {}
  if (format !== FORMAT || typeof version !== 'number' || typeof release !== 'string')
    throw new Error(
      `it has format ${JSON.stringify(format)}, made by svcd ${JSON.stringify(release)}, and this svcd ` +
        `reads format ${FORMAT}: restore it with that svcd`
    )
  return { version, release, images: images === true }
}
