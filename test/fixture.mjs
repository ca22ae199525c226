// tap's `t.testdir`, but for one thing (test/compile.mjs): tap removes the directory before the teardowns of the
// test. A daemon that still writes there makes that fail, no teardown runs, and the process never ends.
import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { TestFixtures as Fixtures } from '../node_modules/@tapjs/fixture/dist/esm/index.js'

export * from '../node_modules/@tapjs/fixture/dist/esm/index.js'

export class TestFixtures extends Fixtures {
  #test

  constructor(test, options) {
    super(test, { ...options, saveFixture: true })
    this.#test = test
  }

  testdir(content) {
    const directory = super.testdir(content)
    // Teardowns run in the reverse order of their registration. A thread may be about to write its last file.
    const removal = { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }
    this.#test.t.teardown(() => {
      if (process.cwd().startsWith(directory)) process.chdir(dirname(directory))
      rmSync(directory, removal)
    })
    return directory
  }
}

export const plugin = (test, options) => new TestFixtures(test, options)
