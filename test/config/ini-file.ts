import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { problemText } from '../../lib/base/errors.js'
import { loadConfig } from '../../lib/config/load.js'
import { type Config, ConfigError } from '../../lib/config/types.js'

/**
 * The ini's directory and a loader of texts; a text's problems come back as printed, without the directory.
 */
export function iniFile(test: Test) {
  const directory = test.testdir()
  const file = join(directory, 'svcd.ini')
  const load = (text: string | Uint8Array, ...overrides: string[]): Config => {
    writeFileSync(file, text)
    return loadConfig(file, overrides)
  }
  const problems = (text: string | Uint8Array, ...overrides: string[]): string[] => {
    try {
      load(text, ...overrides)
      return []
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      return error.problems.map(problem => problemText(problem).replace(`${directory}/`, ''))
    }
  }
  return { directory, file, load, problems }
}
