import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { archive } from '../../../lib/helper/packer/archive.js'
import { builtinPacker } from '../../../lib/helper/packer/builtin-packer.js'
import { Omissions } from '../../../lib/helper/packer/packer.js'
import { systemPacker } from '../../../lib/helper/packer/system-packer.js'
import { bulkyTree, onlyPrograms, request } from '../../image/packing.js'
import { requireRootAndPrograms, run, workDirectory } from '../../image/rich-tree.js'
import { smallDisk } from '../../support/small-disk.js'
import { workersFrom } from '../../support/workers.js'

requireRootAndPrograms()

/** A directory with a tree of 8 MB in it that does not compress, and the path of a file to pack it into. */
function place(t: Test): { directory: string; tree: string; output: string } {
  const directory = workDirectory(t)
  const tree = join(directory, 'tree')
  bulkyTree(tree, 8)
  return { directory, tree, output: join(directory, 'output') }
}

const zstd = systemPacker('zstd')

t.test('a compressor that fails fails the pack, and leaves no file', async t => {
  for (const [what, script, message] of [
    ['at the end', 'cat >&1; echo broken >&2; exit 3', /^tar failed with status 2: broken$/],
    ['killed', 'head -c 100000; kill -KILL $$', /^tar (failed with status 2|was killed)/],
    ['done too early', 'head -c 100000', /^tar (failed with status 2|was killed)/],
    ['before it begins', 'exit 127', /^tar (failed with status 2|was killed)/]
  ] as const)
    await t.test(what, async t => {
      const { directory, tree, output } = place(t)
      onlyPrograms(t, directory, { tar: true, sh: true, setpriv: true, zstd: script })
      await t.rejects(zstd.pack(request(tree, output)), { name: 'ProgramError', message })
      t.notOk(existsSync(output))
    })
  await t.test('gone since it was chosen', async t => {
    const { directory, tree, output } = place(t)
    onlyPrograms(t, directory, { tar: true, sh: true })
    await t.rejects(zstd.pack(request(tree, output)), { message: /zstd: not found/ })
    t.notOk(existsSync(output))
  })
})

t.test('a full disk fails the pack, and leaves no file', async t => {
  const disk = smallDisk(t, '3m')
  const { tree } = place(t)
  for (const packer of [zstd, systemPacker('pigz'), systemPacker('none'), builtinPacker]) {
    const packing = packer.pack(request(tree, join(disk, 'output')))
    await t.rejects(packing, { message: /no space left on device/i })
    t.strictSame(readdirSync(disk), [])
  }
})

t.test('a pack that is stopped leaves no file, and nothing runs on', async t => {
  for (const [what, more, message] of [
    ['by the caller', {}, /^tar was stopped/],
    ['by the time limit', { timeLimitMs: 2000 }, /^tar took longer than 2 s/]
  ] as const)
    await t.test(`tar, ${what}`, async t => {
      const { directory, tree, output } = place(t)
      const pid = join(directory, 'pid')
      onlyPrograms(t, directory, {
        tar: true,
        sh: true,
        setpriv: true,
        zstd: `echo $$ > ${pid}; echo started >&2; exec sleep 1000`
      })
      const controller = new AbortController()
      const line = () => {
        if (Object.keys(more).length === 0) controller.abort()
      }
      const packing = zstd.pack(request(tree, output, { signal: controller.signal, line, ...more }))
      await t.rejects(packing, { name: 'ProgramError', message })
      t.notOk(existsSync(output))
      t.notOk(existsSync(`/proc/${readFileSync(pid, 'utf8').trim()}/exe`), 'its compressor has ended')
    })
  for (const [what, more, message] of [
    ['half-way, by the caller', {}, /^the builtin packer was stopped$/],
    ['by the time limit', { timeLimitMs: 1 }, /^the builtin packer took longer than 0.001 s/]
  ] as const)
    await t.test(`builtin, ${what}`, async t => {
      const { tree, output } = place(t)
      const workers = workersFrom(t)
      const controller = new AbortController()
      const progress = () => controller.abort()
      const packing = builtinPacker.pack(
        request(tree, output, { signal: controller.signal, progress, ...more })
      )
      await t.rejects(packing, { message })
      t.notOk(existsSync(output))
      t.equal(workers.started(), 1)
      t.equal(workers.running(), 0)
    })
  await t.test('before it begins', async t => {
    const { tree, output } = place(t)
    for (const packer of [zstd, builtinPacker]) {
      const packing = packer.pack(request(tree, output, { signal: AbortSignal.abort() }))
      await t.rejects(packing, { message: /was stopped before it began/ })
      t.notOk(existsSync(output))
    }
  })
})

t.test('an output that is there already is left alone', async t => {
  const { directory, tree, output } = place(t)
  for (const packer of [zstd, builtinPacker]) {
    writeFileSync(output, 'kept')
    await t.rejects(packer.pack(request(tree, output)), { code: 'EEXIST' })
    t.equal(readFileSync(output, 'utf8'), 'kept')
    rmSync(output)
    symlinkSync('target', output)
    await t.rejects(packer.pack(request(tree, output)), { code: 'EEXIST' })
    t.notOk(existsSync(join(directory, 'target')))
    rmSync(output)
  }
})

t.test('no tree, no file', async t => {
  const { directory, output } = place(t)
  for (const packer of [zstd, builtinPacker])
    for (const tree of [join(directory, 'nowhere'), join(directory, 'tree/file-000')]) {
      await t.rejects(packer.pack(request(tree, output)))
      t.notOk(existsSync(output))
    }
})

t.test('an image that changes while it is packed fails the pack', async t => {
  /**
   * Packs with a compressor that takes nothing before `change` is done: tar waits, the first file in its
   * hands.
   */
  const packWhile = async (t: Test, change: (tree: string) => void, message: RegExp) => {
    const { directory, tree, output } = place(t)
    const [go, bin] = [join(directory, 'go'), directory]
    run('mkfifo', go)
    onlyPrograms(t, bin, {
      tar: true,
      sh: true,
      setpriv: true,
      zstd: `head -c 1 > /dev/null; echo started >&2; read line < ${go}; exec cat`
    })
    let changed = false
    const line = (text: string) => {
      if (text !== 'started') return
      change(tree)
      changed = true
      writeFileSync(go, 'go\n')
    }
    await t.rejects(zstd.pack(request(tree, output, { line })), { name: 'ProgramError', message })
    t.ok(changed)
    t.notOk(existsSync(output))
  }
  await t.test('tar: a file grows', t =>
    packWhile(
      t,
      tree => appendFileSync(join(tree, 'file-000'), 'more'),
      /^tar failed with status 1: \.\/file-000: file changed as we read it$/
    )
  )
  await t.test('tar: all but the first file goes', t =>
    packWhile(
      t,
      tree => {
        for (const name of readdirSync(tree)) if (name !== 'file-000') rmSync(join(tree, name))
      },
      /^tar failed with status [12]: \.\/file-001: .*(removed|No such file)/
    )
  )

  /** The builtin packer's archive, with `change` made when the first file's content is taken. */
  const archiveWhile = (tree: string, change: () => void) => {
    const pieces = archive({ tree, leaveOut: () => false, mounts: new Set() }, new Omissions())
    for (let seen = 0; ; seen++) {
      if (seen === 3) change()
      if (pieces.next().done) return
    }
  }
  await t.test('builtin: a file grows', async t => {
    const { tree } = place(t)
    t.throws(
      () => archiveWhile(tree, () => appendFileSync(join(tree, 'file-000'), 'more')),
      new Error('./file-000: file changed as we read it')
    )
  })
  await t.test('builtin: a file shrinks', async t => {
    const { tree } = place(t)
    t.throws(
      () => archiveWhile(tree, () => writeFileSync(join(tree, 'file-000'), '')),
      new Error('./file-000: file changed as we read it')
    )
  })
  await t.test('builtin: a file goes', async t => {
    const { tree } = place(t)
    t.throws(
      () => archiveWhile(tree, () => rmSync(join(tree, 'file-005'))),
      new Error('./file-005: cannot be read (ENOENT)')
    )
  })
  await t.test('builtin: a file comes', async t => {
    const { tree } = place(t)
    t.throws(
      () => archiveWhile(tree, () => writeFileSync(join(tree, 'new'), '')),
      new Error('.: file changed as we read it')
    )
  })
  await t.test('builtin: a file system is mounted after the mounts were listed', async t => {
    const { tree } = place(t)
    const late = join(tree, 'late')
    mkdirSync(late)
    const omitted = new Omissions()
    let text = ''
    let isMounted = false
    try {
      for (const piece of archive({ tree, leaveOut: () => false, mounts: new Set() }, omitted)) {
        text += piece.toString('latin1')
        if (!isMounted) run('mount', '--bind', '/etc', late)
        isMounted = true
      }
    } finally {
      run('umount', late)
    }
    t.match(text, './late/')
    t.notMatch(text, './late/passwd')
    t.match(omitted.sentences().join('\n'), /late/)
  })
  await t.test('builtin: a directory is replaced by a link that leads out', async t => {
    const { directory, tree } = place(t)
    mkdirSync(join(tree, 'inner'))
    writeFileSync(join(tree, 'inner/file'), Buffer.alloc(1 << 20))
    writeFileSync(join(tree, 'inner/secret'), 'inside')
    mkdirSync(join(directory, 'outside'))
    writeFileSync(join(directory, 'outside/secret'), 'outside')
    const pieces = archive({ tree, leaveOut: () => false, mounts: new Set() }, new Omissions())
    let text = ''
    let isSwapped = false
    t.throws(() => {
      for (const piece of pieces) {
        text += piece.toString('latin1')
        if (isSwapped || !text.includes('./inner/file')) continue
        renameSync(join(tree, 'inner'), join(directory, 'away'))
        symlinkSync('../outside', join(tree, 'inner'))
        isSwapped = true
      }
    })
    t.ok(isSwapped)
    t.match(text, './inner/secret')
    t.notMatch(text, 'outside')
  })
})

t.test('an exclude that names nothing is refused before a file is made', async t => {
  const { tree, output } = place(t)
  for (const packer of [zstd, builtinPacker])
    for (const exclude of ['', '/', '//./']) {
      await t.rejects(packer.pack(request(tree, output, { excludes: [exclude] })), {
        message: `exclude ${JSON.stringify(exclude)} names no path in an image`
      })
      t.notOk(existsSync(output))
    }
})
