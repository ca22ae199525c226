import { createHook } from 'node:async_hooks'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { OpenFiles, SmallFileCache } from '../../lib/http/files.js'
import { RawClient, route, start } from './helpers.js'

const KILOBYTE = 1024
const dir = t.testdir({
  small: 'small',
  large: 'x'.repeat(64 * KILOBYTE + 1),
  limit: 'y'.repeat(64 * KILOBYTE)
})
const get = (path: string, more = '', method = 'GET') =>
  `${method} ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
const files = [
  route('GET', '/{file}', ({ params }) => ({ status: 200, file: join(dir, params.file as string) }))
]

/** Small files, and how many descriptors they have. */
function smallFiles(now = () => Date.now() + 10_000) {
  const open = { now: 0, taken: 0 }
  const descriptors = {
    takeFile: () => {
      open.now++
      open.taken++
    },
    releaseFile: () => {
      open.now--
    }
  }
  return { small: new SmallFileCache(new OpenFiles(descriptors), now), open }
}

// rules 2.13
t.test('a file of up to 64 KiB needs no place among the downloads', async t => {
  const { port } = await start(t, files, { limits: { downloads: 0, downloadWaitMs: 0 } })
  const client = new RawClient(port)
  t.match(await client.send(get('/small')).response(), { status: 200, body: 'small' })
  t.match(await client.send(get('/limit')).response(), { status: 200, body: 'y'.repeat(64 * KILOBYTE) })
  t.match(await client.send(get('/large')).response(), { status: 503 })
  const part = await client.send(get('/small', 'Range: bytes=1-3\r\n')).response()
  t.match(part, { status: 206, body: 'mal', headers: { 'content-range': 'bytes 1-3/5' } })
  const head = await client.send(get('/small', '', 'HEAD')).response(true)
  t.match(head, { status: 200, body: '', headers: { 'content-length': '5' } })
  t.match(await client.send(get('/small', 'Range: bytes=9-\r\n')).response(), { status: 416 })
  client.socket.destroy()
})

// rules 2.13
t.test('a small file is the one that is there when it is asked for', async t => {
  const { port } = await start(t, files)
  const client = new RawClient(port)
  const path = join(dir, 'changing')
  const etags = new Set<string | undefined>()
  const asked = async () => {
    const { status, body, headers } = await client.send(get('/changing')).response()
    etags.add(headers.etag)
    return status === 200 ? body : status
  }
  writeFileSync(path, 'one')
  t.equal(await asked(), 'one')
  t.equal(await asked(), 'one')
  writeFileSync(path, 'two')
  t.equal(await asked(), 'two', 'written into')
  writeFileSync(`${path}.new`, 'six')
  renameSync(`${path}.new`, path)
  t.equal(await asked(), 'six', 'replaced')
  writeFileSync(path, 'x'.repeat(100 * KILOBYTE))
  t.equal(await asked(), 'x'.repeat(100 * KILOBYTE), 'no small one any more')
  writeFileSync(path, '')
  t.equal(await asked(), '', 'empty')
  rmSync(path)
  t.equal(await asked(), 404, 'gone')
  t.equal(etags.size, 6, 'each has an ETag of its own, a 404 none')
  client.socket.destroy()
})

// rules 2.13
t.test('those who ask at the same time share one look at the disk', async t => {
  const { small, open } = smallFiles()
  let asked = 0
  const hook = createHook({
    init: (_, type) => {
      if (type === 'FSREQPROMISE') asked++
    }
  }).enable()
  const path = join(dir, 'small')
  const found = await Promise.all(Array.from({ length: 500 }, () => small.get(path)))
  hook.disable()
  t.ok(found.every(each => each?.bytes.toString() === 'small'))
  t.ok(asked > 0 && asked < 10, `the system was asked ${asked} times`)
  t.equal(open.taken, 1, 'it was read once')
})

t.test(
  'what was changed within the last second is not kept: it may have the same time after one more change',
  async t => {
    const path = join(dir, 'young')
    let nowMs = 0
    const { small, open } = smallFiles(() => nowMs)
    writeFileSync(path, 'young')
    nowMs = Date.now()
    for (const _ of Array(2)) t.equal((await small.get(path))?.bytes.toString(), 'young')
    t.equal(open.taken, 2)
    nowMs += 1100
    for (const _ of Array(2)) t.equal((await small.get(path))?.bytes.toString(), 'young')
    t.equal(open.taken, 3)
  }
)

t.test('what is kept of small files has a bound', async t => {
  const { small, open } = smallFiles()
  const paths = Array.from({ length: 100 }, (_, i) => join(dir, `f${i}`))
  for (const path of paths) {
    writeFileSync(path, Buffer.alloc(64 * KILOBYTE, path))
    await small.get(path)
  }
  t.equal(open.taken, 100)
  // 4 MiB: the last 64 are there still.
  for (const path of paths.slice(36)) await small.get(path)
  t.equal(open.taken, 100)
  await small.get(paths[0] as string)
  t.equal(open.taken, 101, 'the others are read anew')
  t.equal(open.now, 0, 'none is left open')
})

t.test('what is no small file, or cannot be read, is left to whoever opens it', async t => {
  const { small, open } = smallFiles()
  for (const name of ['large', '.', 'missing']) t.equal(await small.get(join(dir, name)), undefined, name)
  const full = new SmallFileCache(
    new OpenFiles({
      takeFile: () => {
        throw new Error('no descriptor')
      },
      releaseFile: () => undefined
    })
  )
  t.equal(await full.get(join(dir, 'small')), undefined)
  t.equal(open.now, 0)
})
