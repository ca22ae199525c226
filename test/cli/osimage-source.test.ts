import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { buildLayout, debian, login, pushLayout, startRegistry } from '../image/oci/registry.js'
import { makeTree } from '../image/small-tree.js'
import { onTerminal } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'

// rules 9.16, 9.17, 14.6
t.test('import, update and push by svcctl', async t => {
  requireRoot()
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  mkdirSync(at('svcctl'))
  const { host, authfile } = await startRegistry(t, directory)
  const c = await Controller.start(t, `image.registry_auth=${authfile}`)
  const env = svcctlFor(at('svcctl'), c)
  const program = join(env.PATH?.split(':')[0] as string, 'svcctl')
  const svcctl = (...words: string[]) => start(program, ['osimage', ...words], { input: '', env }).ended
  const source = `docker://${host}/site/compute:1`
  await pushLayout(await buildLayout(directory, 'first', debian), source, authfile)

  const imported = await svcctl('import', source, 'new')
  t.equal(imported.code, 0)
  t.match(imported.stdout, /^OS image new is sha256:[0-9a-f]{64}: 1 layers; pack it for the nodes\n$/)
  t.match(imported.stderr, /^warning: OS image new cannot boot yet: it lacks a kernel .*RUN apt-get update/)
  t.ok(existsSync(join(c.directory, 'images/new/etc/hostname')))
  const { stdout: shown } = await svcctl('show', 'new')
  t.match(shown, `    reference = ${source}\n`)
  t.match(shown, /^_source\n(?: {4}.*\n)* {4}digest = sha256:[0-9a-f]{64}$/m)
  const same = await svcctl('update', 'new', '-o', 'json')
  t.match(JSON.parse(same.stdout), {
    state: 'done',
    lines: ['queued', /is still sha256:.*: nothing was fetched$/]
  })

  // On a terminal there is a bar, on standard error alone.
  await pushLayout(await buildLayout(directory, 'second', debian, { 'etc/more': 'more' }), source, authfile)
  const more = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const into = at('stdout')
  const { stdout: screen } = await onTerminal(
    ...(['env', ...more, 'sh', '-c', `"$0" osimage update new >${into}`, program] as const)
  ).ended
  t.match(screen, /\r\[#* *\] .*fetching docker:/)
  t.match(screen, /\[#{30}\] OS image new is/)
  t.match(readFileSync(into, 'utf8'), /^OS image new is sha256:.*: 2 layers; pack it for the nodes\n$/)
  t.ok(existsSync(join(c.directory, 'images/new/etc/more')))

  makeTree(join(c.directory, 'images/new'))
  const target = `docker://${host}/site/compute:2`
  const early = await svcctl('push', 'new', target)
  t.match(early, {
    code: 1,
    stdout: '',
    stderr: 'svcctl: OS image new is not packed: svcctl osimage pack new\n'
  })
  t.match(await svcctl('pack', 'new'), { code: 0 })
  const pushed = await svcctl('push', 'new', target)
  t.match(pushed, { code: 0, stderr: '' })
  t.match(
    pushed.stdout,
    /^OS image new: new-[0-9a-f]{12}\.tar\.\w+ is docker:.*\/site\/compute@sha256:[0-9a-f]{64}\n$/
  )
  t.match(await svcctl('tag', 'new', 'gold'), { code: 0 })
  t.match(await svcctl('push', 'new', target, '--tag', 'gold'), { code: 0, stdout: pushed.stdout })

  const wrong: [string[], number, RegExp][] = [
    [['import', 'compute:1', 'other'], 1, /field "source": it must be docker:/],
    [['import', `docker://me:${login.password}@${host}/x:1`, 'other'], 1, /it holds a login/],
    [
      ['import', `docker://${host}/site/none:1`, 'other'],
      1,
      /manifest unknown.*look at its name and its tag/
    ],
    [['import', source, 'new'], 1, /exists already: svcctl osimage update new/],
    [['update', 'none'], 1, /OS image none does not exist/],
    [['push', 'new', 'oci-archive:/tmp/x.tar'], 1, /field "target": it must be docker:/],
    [['push', 'new'], 2, /usage: svcctl osimage push/],
    [['push', 'new', target, '--dryrun'], 2, /osimage push takes no --dryrun/],
    [['import', source, 'other', '--tag', 'x'], 2, /import takes no --tag/]
  ]
  for (const [words, code, says] of wrong) {
    const ended = await svcctl(...words)
    t.match(ended, { code, stdout: '', stderr: says }, words.join(' '))
    t.notMatch(ended.stderr, login.password)
  }
  writeFileSync(authfile, '{"auths":{}}')
  const refused = await svcctl('push', 'new', target)
  t.match(refused, { code: 1, stderr: /give svcd a login: skopeo login --authfile FILE/ })
})
