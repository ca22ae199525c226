import { execFileSync } from 'node:child_process'
import {
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { refuseForeignLink } from '../../lib/disk/file.js'
import { DiskThread, identityIn, realFiles, StepError } from '../../lib/disk/steps.js'
import { scratch } from '../support/scratch.js'

const disk = new DiskThread()
const identityOf = (directory: string) => identityIn(statSync(directory, { bigint: true }))

t.test('steps are carried out in their order, groups of them too', async t => {
  const root = scratch(t)
  const file = (name: string) => join(root, name)
  const log = await open(file('log'), 'w', 0o600)
  const write = (text: string, position: number) => ({
    ...{ write: log.fd, position, bytes: Buffer.from(text), zeros: 0 },
    sync: true
  })
  const same = { same: root, identity: identityOf(root), otherwise: 'another' }
  await Promise.all([
    disk.run([same, { replace: file('a'), text: '1' }, { replace: file('b'), text: '2' }]),
    disk.run([{ replace: file('a'), text: 'ä' }, { remove: file('b') }, { remove: file('missing') }]),
    disk.run([write('first\n', 0), { appendTo: file('lines'), text: 'x\n' }]),
    disk.run([write('second\n', 6), { appendTo: file('lines'), text: 'y\n' }]),
    disk.run([{ syncDirectory: root }])
  ])
  await log.close()
  t.same(readdirSync(root).sort(), ['a', 'lines', 'log'])
  t.equal(readFileSync(file('a'), 'utf8'), 'ä')
  t.equal(readFileSync(file('log'), 'utf8'), 'first\nsecond\n')
  t.equal(readFileSync(file('lines'), 'utf8'), 'x\ny\n')
  for (const name of ['a', 'lines']) t.equal(statSync(file(name)).mode & 0o777, 0o600, name)
})

t.test('the first failure ends a group: its error says which step it was', async t => {
  const root = scratch(t)
  const directory = join(root, 'directory')
  mkdirSync(directory)
  const [kept, later] = [join(root, 'kept'), join(root, 'later')]
  writeFileSync(kept, 'old')
  const missing = join(root, 'missing', 'x.json')
  const pipe = join(scratch(t), 'pipe')
  execFileSync('mkfifo', [pipe])
  const end = { replace: later, text: '' }
  const wrong = { write: 9999, position: 0, bytes: Buffer.from('x'), zeros: 0, sync: true }
  for (const [steps, step, code, message] of [
    [
      [{ replace: missing, text: '' }, end],
      0,
      'ENOENT',
      `ENOENT: no such file or directory, open '${missing}'`
    ],
    [
      [{ remove: later }, { replace: directory, text: '' }, end],
      1,
      'EISDIR',
      `EISDIR: illegal operation on a directory, rename '${directory}'`
    ],
    [
      [{ remove: later }, { syncDirectory: missing }, end],
      1,
      'ENOENT',
      `ENOENT: no such file or directory, open '${missing}'`
    ],
    [
      [{ appendTo: directory, text: 'x' }, end],
      0,
      'EISDIR',
      `EISDIR: illegal operation on a directory, open '${directory}'`
    ],
    [[{ appendTo: pipe, text: 'x' }, end], 0, 'ENXIO', `ENXIO: no such device or address, open '${pipe}'`],
    [[wrong, end], 0, 'EBADF', 'EBADF: bad file descriptor, write'],
    [[{ same: root, identity: '0:0', otherwise: 'it is another' }, end], 0, undefined, 'it is another']
  ] as const) {
    const failure = await disk.run(steps).then(
      () => undefined,
      error => error
    )
    t.type(failure, StepError)
    t.match(failure, { step, message, ...(code ? { code } : {}) }, message)
    t.equal(typeof failure.errno, code ? 'number' : 'undefined')
  }
  // A failure among files that are replaced together leaves each of them old or new, and nothing beside them.
  const together = [kept, directory, later].map(file => ({ replace: file, text: 'new' }))
  await t.rejects(disk.run(together), { step: 1, code: 'EISDIR' })
  t.match(readFileSync(kept, 'utf8'), /^(old|new)$/)
  t.same(readdirSync(root).sort(), ['directory', 'kept'])
})

t.test('a link is replaced, not followed; another directory at the same path is noticed', async t => {
  const root = scratch(t)
  writeFileSync(join(root, 'secret'), 'secret')
  symlinkSync('secret', join(root, 'link'))
  await disk.run([{ replace: join(root, 'link'), text: 'mine' }])
  t.equal(readFileSync(join(root, 'secret'), 'utf8'), 'secret')
  for (const to of ['secret', 'missing']) {
    const link = join(root, `link to ${to}`)
    symlinkSync(to, link)
    const message = `${link} is a link, and svcd follows none here: put the file itself in its place`
    await t.rejects(disk.run([{ appendTo: link, text: 'x' }]), { step: 0, code: 'ELOOP', message })
    await t.rejects(realFiles.openLog(link, true), { code: 'ELOOP', message })
  }
  t.equal(readFileSync(join(root, 'secret'), 'utf8'), 'secret')
  t.notOk(existsSync(join(root, 'missing')))
  // The place of a directory is not that of a link of another user: root would be led by it.
  const planted = join(root, 'planted')
  mkdirSync(join(root, 'theirs'))
  writeFileSync(join(root, 'theirs', 'x.json'), 'theirs')
  symlinkSync('theirs', planted)
  lchownSync(planted, 65_534, 65_534)
  const message = `${planted} is a link that belongs to user 65534: remove it, or make it again as root`
  const x = join(planted, 'x.json')
  await t.rejects(disk.run([{ replace: x, text: 'mine' }]), { step: 0, message })
  await t.rejects(disk.run([{ remove: x }]), { step: 0, message })
  t.intercept(process, 'getuid', { value: () => 65_533 })
  t.throws(() => refuseForeignLink(planted), { message: message.replace('as root', 'as user 65533') })
  t.equal(readFileSync(x, 'utf8'), 'theirs')
  t.same(readdirSync(planted), ['x.json'])
  lchownSync(planted, 0, 0)
  await disk.run([{ replace: x, text: 'mine' }])
  t.equal(readFileSync(x, 'utf8'), 'mine')
  const state = join(root, 'state')
  mkdirSync(state)
  const ours = { same: state, identity: identityOf(state), otherwise: `${state} is another` }
  renameSync(state, `${state}-away`)
  mkdirSync(state)
  const write = () => disk.run([ours, { replace: join(state, 'x'), text: '' }])
  await t.rejects(write(), { step: 0, message: ours.otherwise })
  t.same(readdirSync(state), [])
  renameSync(state, `${state}-other`)
  await t.rejects(write(), { step: 0, code: 'ENOENT' })
  renameSync(`${state}-away`, state)
  await write()
  t.same(readdirSync(state), ['x'])
})

t.test('when the thread ends, what was asked of it fails, and the next steps get a new one', async t => {
  const root = scratch(t)
  const own = new DiskThread()
  // Answers that arrive after the error of the thread must not count for what the next one is asked.
  const done = [1, 2, 3].map(i => own.run([{ replace: join(root, `${i}`), text: '' }]))
  const ending = own.run(undefined as never)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500)
  const again = ending.catch(() => own.run([{ appendTo: join(root, 'missing', 'x'), text: '' }]))
  await Promise.all(
    done.map(one => one.catch(error => t.notOk(error instanceof StepError, 'it is not known')))
  )
  await t.rejects(again, { step: 0, code: 'ENOENT' })
  // No list of steps: the thread throws.
  const broken = own.run(undefined as never)
  const after = own.run([{ replace: join(root, 'a'), text: '' }])
  const error = await broken.catch(error => error)
  t.notOk(error instanceof StepError, 'what was done is not known')
  await t.rejects(after, Error)
  await own.run([{ replace: join(root, 'b'), text: 'b' }])
  t.equal(readFileSync(join(root, 'b'), 'utf8'), 'b')
})
