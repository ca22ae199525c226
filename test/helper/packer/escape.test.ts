import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, openSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { Tree } from '../../image/initramfs-tree.js'
import { node, programEnv, requirePrograms, requireRoot } from '../../support/programs.js'
import { proof } from '../../support/proof.js'
import { attempts } from './escape.js'

requireRoot()
requirePrograms('busybox', 'perl', 'unshare', 'setpriv', 'nsenter')

/** CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_CHROOT. */
const capabilities = [0, 1, 3, 18]
  .reduce((all, one) => all + 2 ** one, 0)
  .toString(16)
  .padStart(16, '0')

// rules 9.13
for (const [name, start] of [
  ['programs of an image cannot get out of it', ['setpriv', '--no-new-privs']],
  // Without this capability nobody can map the users of a namespace.
  ['nor where the service can have no user namespace', ['setpriv', '--bounding-set=-setuid']]
] as const)
  t.test(name, async t => {
    const whole = !start.some(word => word.includes('setuid'))
    const tree = new Tree(t, 'dracut')
    const outside = join(tree.path, '..', 'outside')
    mkdirSync(outside)
    const { dev } = statSync(outside)
    const device = [(dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & ~0xff)] as const
    tree.install('perl')
    tree.write('var/escape.pl', attempts(outside, device, process.pid))
    tree.program(
      'dracut',
      '#!/bin/sh\nperl /var/escape.pl >/var/escaped 2>&1\necho an initramfs >/tmp/svc/initrd\n'
    )
    // A service that was started with a directory of this machine open. Low descriptors node hides itself.
    const [program = '', ...args] = [
      ...start,
      ...node,
      join(import.meta.dirname, 'initramfs-build.js'),
      tree.path
    ]
    const leaked = openSync(outside, 'r')
    const others = Array.from({ length: 37 }, () => 'ignore' as const)
    const service = spawn(program, args, {
      env: programEnv(),
      stdio: ['ignore', 'pipe', 'inherit', ...others, leaked]
    })
    const [lines] = await Promise.all([text(service.stdout as Readable), once(service, 'exit')])
    t.strictSame(tree.inside(), [], 'no process is left')
    t.strictSame(readdirSync(outside), [], 'nothing is written outside')
    const came = tree
      .read('var/escaped')
      .trim()
      .split('\n')
      .map(line => line.split(/: (.*)/) as [string, string])
    const { NoNewPrivs, CapEff, CapBnd, ...tried } = Object.fromEntries(came)
    const out = Object.entries(tried).filter(([, result]) => result === 'done').length
    // Without a user namespace of its own, a program may make one; it is shut in all the same.
    const note = whole ? `${out} attempts succeeded` : `without a user namespace; ${out} made namespaces`
    proof('an image that breaks out of its pack', { tried: Object.keys(tried).length, note })
    t.match({ NoNewPrivs, CapEff, CapBnd }, { NoNewPrivs: '1', CapEff: capabilities, CapBnd: capabilities })
    for (const [name, result] of Object.entries(tried)) {
      const [, namespace] = /^namespace (.*)/.exec(name) ?? []
      if (!whole && /user|mount namespace/.test(name)) continue
      if (namespace === undefined) t.match(result, /^no\b/, name)
      else t.not(result, readlinkSync(`/proc/self/ns/${namespace}`), name)
    }
    t.equal(Object.keys(tried).length, 35, 'it came to its end', { tried })
    t.equal(/without a user namespace of their own: EPERM/.test(lines), !whole, 'the record says so', {
      lines
    })
    t.notOk(existsSync(join(tree.path, 'disk')), 'no device in the image')
  })
