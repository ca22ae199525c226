import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { checkout, programEnv, requirePrograms } from '../support/programs.js'

const files = (directory: string) => readdirSync(join(checkout, directory)).map(name => join(directory, name))
const module = 'dracut/90svc'
const scripts = [module, 'initramfs-tools/hooks', 'initramfs-tools/scripts', 'libexec'].flatMap(files)
const dracutOnly = join(module, 'module-setup.sh')

/** What a program says of a script: nothing, where it is content. */
const says = (program: string, ...args: string[]): Promise<string> =>
  promisify(execFile)(program, args, { cwd: checkout, env: programEnv() }).then(
    ({ stdout, stderr }) => stdout + stderr,
    (error: { stdout?: string; stderr?: string }) => `${error.stdout ?? error}${error.stderr ?? ''}`
  )

t.test('shellcheck finds nothing in the scripts of the node side', async t => {
  requirePrograms('shellcheck')
  t.ok(scripts.length > 10)
  t.equal(await says('shellcheck', '-x', ...scripts), '')
})

t.test('each shell that an initramfs may have can read them', async t => {
  requirePrograms('dash', 'bash', 'busybox', '/usr/lib/klibc/bin/sh')
  for (const script of scripts.filter(script => script !== dracutOnly)) {
    for (const shell of ['dash', 'bash', '/usr/lib/klibc/bin/sh'])
      t.equal(await says(shell, '-n', script), '', `${shell} ${script}`)
    t.equal(await says('busybox', 'ash', '-n', script), '', `ash ${script}`)
  }
})

t.test('the parts named for the initramfs are all there are', async t => {
  const contents = readFileSync(join(checkout, module, 'svc-contents.sh'), 'utf8')
  const parts = contents.match(/svc_parts='(.*)'/)?.[1]?.split(' ') ?? []
  const outside = ['contents', 'cmdline', 'pre-mount']
  const there = files(module).flatMap(path => path.match(/svc-(.*)\.sh$/)?.[1] ?? [])
  t.strictSame(there.filter(name => !outside.includes(name)).sort(), [...parts].sort())
})
