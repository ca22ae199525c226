// Bundles the client into one file, dist/svcctl.js: shell completion starts it at each Tab, and loading a
// hundred small files takes longer than asking the controller. Usage: `node build/bundle.mjs [DIRECTORY]` of
// a built checkout.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildSync } from 'esbuild'

// The bundle finds the commit and ../package.json from dist/, as dist/version.js does.
const contents = `import { ctl } from './cli/ctl.js'
import { failureLines } from './cli/usage.js'
process.exit(await ctl(process.argv.slice(3)).catch(error => {
  for (const line of failureLines(error)) process.stderr.write(line + '\\n')
  return 1
}))`

/** Returns the bundle of the client, from the directory of the compiled code. */
export const clientBundle = directory =>
  buildSync({
    stdin: { contents, resolveDir: directory },
    absWorkingDir: directory,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'es2022',
    // Packages in CommonJS need both; __filename makes temporary names differ between programs.
    banner: {
      js: `import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url)`
    },
    define: { __filename: '"svcctl"' },
    logLevel: 'warning',
    write: false
  }).outputFiles[0].contents

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = process.argv[2] ?? fileURLToPath(new URL('..', import.meta.url))
  const dist = join(root, 'dist')
  writeFileSync(join(dist, 'svcctl.js'), clientBundle(dist))
}
