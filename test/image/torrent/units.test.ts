import { once } from 'node:events'
import { copyFile, cp, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { scrape } from '../../../lib/image/torrent/scrape.js'
import { start } from '../../support/child.js'
import { checkout, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'

const packaged = ['opentracker', 'transmission-daemon'].map(name => `/lib/systemd/system/${name}.service`)
requirePrograms('systemd-analyze', 'aria2c', ...packaged)

/** What `systemd-analyze verify` has to say of a unit in a directory, with the drop-ins there. */
async function verify(directory: string, unit: string): Promise<string> {
  const child = start('systemd-analyze', ['verify', '--man=no', join(directory, unit)], { input: '' })
  const { code } = await child.ended
  return child.output() + (code === 0 ? '' : `ended with ${code}`)
}

t.test('the units of tracker and seeder pass systemd-analyze verify, without a word', async t => {
  const directory = scratch(t)
  for (const name of ['svcd-seeder.service', 'opentracker.service.d', 'transmission-daemon.service.d'])
    await cp(join(checkout, 'systemd', name), join(directory, name), { recursive: true })
  for (const unit of packaged) await copyFile(unit, join(directory, unit.split('/').at(-1) ?? ''))
  for (const unit of ['svcd-seeder', 'opentracker', 'transmission-daemon'])
    t.equal(await verify(directory, `${unit}.service`), '')
  for (const dropIn of ['opentracker', 'transmission-daemon']) {
    const file = join(directory, `${dropIn}.service.d/svcd.conf`)
    await writeFile(file, `${await readFile(file, 'utf8')}\nMemoryMaximum=1\n`)
    t.match(await verify(directory, `${dropIn}.service`), 'MemoryMaximum', 'the drop-in was read')
  }
})

t.test('ini, units and configurations of the servers name the same paths', async t => {
  const read = (file: string) => readFile(join(checkout, file), 'utf8')
  const [tracker, seeder] = [await read('etc/opentracker.conf'), await read('etc/aria2.conf')]
  const [dropIn, unit] = [
    await read('systemd/opentracker.service.d/svcd.conf'),
    await read('systemd/svcd-seeder.service')
  ]
  const bound = (text: string) => /^BindReadOnlyPaths=(.*)$/m.exec(text)?.[1]
  t.equal(/^access\.whitelist (.*)\/whitelist$/m.exec(tracker)?.[1], bound(dropIn))
  t.equal(/^dir=(.*)$/m.exec(seeder)?.[1], bound(unit))
  t.notMatch(seeder, /^rpc-secret=/m, 'no secret is shipped')
})

t.test('an answer of a tracker that is too long is not read, and its reason is shortened', async t => {
  let text = ''
  const server = createServer((_request, response) => response.end(text)).listen(0, '127.0.0.1')
  t.teardown(() => server.close().closeAllConnections())
  await once(server, 'listening')
  const ask = () => {
    const { port } = server.address() as AddressInfo
    return scrape(`http://127.0.0.1:${port}/announce`, ['0'.repeat(40)], new AbortController().signal)
  }
  text = `d14:failure reason5000:${'x'.repeat(5000)}e`
  await t.rejects(ask(), /^it refuses: x{300}…?$|^it refuses: x{299}…$/)
  text = `d5:filesl${'0:'.repeat(50_000)}ee`
  await t.rejects(ask(), { name: 'TooLongError' })
})
