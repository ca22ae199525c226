import { Aria2 } from './aria2.js'
import type { Seeder, SeederSettings } from './seeder.js'
import { Transmission } from './transmission.js'
import { WatchDirectory } from './watch-directory.js'

/** The seeder of the ini, for torrents and their files in `files`; undefined where it names none. */
export function chooseSeeder(settings: SeederSettings, files: string): Seeder | undefined {
  const { seeder, seeder_url: url, seeder_secret: secret, seeder_watch: watch } = settings
  if (seeder === 'none') return undefined
  if (seeder === 'aria2') return new Aria2(url, secret, files)
  return watch === '' ? new Transmission(url, secret, files) : new WatchDirectory(watch, files)
}
