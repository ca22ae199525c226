import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { installData } from '../support/install-data.js'
import { installLibrary, installScript } from '../support/install-script.js'
import type { FakeController } from './fake-controller.js'
import { exits, image, startFakeController } from './install.js'
import { InstallingNode, type Setup } from './installing-node.js'
import { sha256 } from './packed-image.js'

// An installation with several controllers (rules 4.28): each is a real server, of which one is gone, stands
// still, refuses or dies on the way.

// They wait more than they work.
t.jobs = 4

const downloaders: Record<string, Setup> = {
  curl: { shell: 'dash' },
  'curl, bash': { shell: 'bash' },
  'curl, klibc': { shell: 'klibc' },
  'GNU wget': { shell: 'dash', without: ['curl'] },
  'busybox wget': { shell: 'ash' }
}
const tarball = '/files/rocky9.tar.gz'
const steps = ['started', 'partscript', 'download', 'unpack', 'network', 'completed'].map(
  step => `installer.${step}`
)

interface Plan {
  readonly data?: Partial<InstallData>
  readonly edit?: (script: string) => string
}

type Place = Pick<FakeController, 'place'>

/** Installs with these controllers, the first of which has made the script. */
async function installed(t: Test, setup: Setup, controllers: readonly Place[], plan: Plan = {}) {
  const machine = new InstallingNode(t, setup)
  const urls = controllers.map(({ place }) => place.url)
  const script = installScript(installData({ ...controllers[0]?.place, urls, ...plan.data }))
  const [run] = await machine.run(plan.edit?.(script) ?? script)
  if (run === undefined) throw new Error('no run')
  return { machine, run, urls }
}

const two = async (t: Test) => [await startFakeController(t), await startFakeController(t)] as const

/** One that nobody answers for any more. */
async function dead(t: Test): Promise<Place> {
  const controller = await startFakeController(t)
  const { place } = controller
  controller.close()
  return { place }
}

for (const [name, setup] of Object.entries(downloaders)) {
  t.test(`the first one is gone: the second one is asked, and stays, ${name}`, async t => {
    const [first, second] = [await dead(t), await startFakeController(t)]
    const { run, urls } = await installed(t, setup, [first, second])
    exits(t, [run], [0])
    t.strictSame(second.states, steps)
    t.strictSame(second.gets(), [tarball])
    t.equal(run.output.match(/; trying http/g)?.length, 1, 'the first one is tried once', { run })
    t.match(run.output, `${urls[0]}: `)
  })

  t.test(`the first one dies while it sends the image, ${name}`, async t => {
    const [first, second] = await two(t)
    first.files.set(tarball, (response: ServerResponse) => {
      response.writeHead(200, { 'content-length': image.length })
      response.write(image.subarray(0, image.length / 2), () => setTimeout(() => first.close(), 50))
    })
    const { run, machine } = await installed(t, setup, [first, second], {
      data: { imagesum: sha256(image) }
    })
    exits(t, [run], [0])
    t.strictSame(first.states, steps.slice(0, 3))
    t.strictSame(second.states, steps.slice(3))
    t.strictSame([first.gets(), second.gets()], [[tarball], [tarball]])
    t.equal(machine.read('etc/os-release'), 'ID=test\n')
  })

  // The other shells do not show more.
  if (name.startsWith('curl,') && !process.env.SVCD_LONG) continue
  t.test(`what one does not give the other one has, ${name}`, async t => {
    const [first, second] = await two(t)
    const text = installLibrary()
    const library = sha256(Buffer.from(text))
    const names = [`/boot/library/${library}`, tarball, '/boot/roles/ntp']
    first.files.set(names[0] ?? '', response => response.writeHead(500).end())
    second.files.set(names[0] ?? '', text)
    second.files.delete(tarball)
    second.files.set('/boot/roles/ntp', '{"target":"multi-user.target","script":"dHJ1ZQo="}')
    const { run } = await installed(t, setup, [first, second], { data: { library, roles: ['ntp'] } })
    exits(t, [run], [0])
    t.strictSame([first.gets(), second.gets()], [names, names])
    const of = (...steps: string[]) => steps.map(step => `installer.${step}`)
    t.strictSame(
      first.states,
      of('started', 'unpack', 'network', 'roles'),
      'each report to who answered last'
    )
    t.strictSame(second.states, of('partscript', 'download', 'completed'))
  })

  t.test(`a refused report is not taken elsewhere, ${name}`, async t => {
    const [first, second] = await two(t)
    first.onPost = (_, response) => response.writeHead(401, { 'www-authenticate': 'token' }).end()
    const { run } = await installed(t, setup, [first, second])
    exits(t, [run], [0])
    t.strictSame(second.states, [])
    t.strictSame(first.states, steps, 'and not tried again')
  })

  t.test(`nobody has it: the reason names all, ${name}`, async t => {
    const [first, second] = await two(t)
    first.files.delete(tarball)
    second.files.set(tarball, response => response.writeHead(500).end())
    const { run, urls } = await installed(t, setup, [first, second])
    t.not(run.status, 0)
    const told = [...first.states, ...second.states].find(state => state.startsWith('installer.failed')) ?? ''
    const [one = '', other = ''] = told.split(`; ${urls[1]}`)
    t.ok(one.startsWith(`installer.failed: download: cannot fetch ${urls[0]}${tarball}: `), told)
    t.match(one, '404')
    t.match(other, /^\/files\/rocky9\.tar\.gz: .*500/)
  })

  t.test(`reports wait until another controller has taken over, ${name}`, async t => {
    const [first, second] = [await dead(t), await startFakeController(t)]
    let from = 0
    // It follows the one that died, and takes over four seconds later.
    second.onPost = (_, response) => {
      from ||= performance.now()
      response.writeHead(performance.now() - from < 4000 ? 503 : 204, { 'retry-after': '5' }).end()
    }
    const { run } = await installed(t, setup, [first, second])
    exits(t, [run], [0])
    t.notMatch(run.output, 'could not be reported')
    t.strictSame([...new Set(second.states)], steps)
  })

  // Only these tell of `Retry-After`.
  if (name !== 'busybox wget')
    t.test(`one that has too much to do is left for another one, ${name}`, async t => {
      const [first, second] = await two(t)
      const busy = (response: ServerResponse) => response.writeHead(503, { 'retry-after': '30' }).end()
      first.files.set(tarball, busy)
      const once = await installed(t, setup, [first, second])
      exits(t, [once.run], [0])
      t.notMatch(once.run.output, 'the controller is busy')
      let refusals = 0
      for (const controller of [first, second])
        controller.files.set(tarball, response => {
          if (refusals++ < 3) response.writeHead(503, { 'retry-after': '1' }).end()
          else response.writeHead(200, { 'content-length': image.length }).end(image)
        })
      const both = await installed(t, setup, [first, second])
      exits(t, [both.run], [0])
      t.equal(both.run.output.match(/the controller is busy, next try in 1 s/g)?.length, 1)
    })

  // It tries for a minute, whatever `_STALL` says.
  if (name === 'GNU wget') continue
  t.test(`one that stands still is left, ${name}`, async t => {
    const [first, second] = await two(t)
    const still = () => {}
    first.onPost = still
    first.files.set(tarball, still)
    const { run } = await installed(t, setup, [first, second], {
      edit: script => script.replace('\n_STALL=60\n', '\n_STALL=2\n')
    })
    exits(t, [run], [0])
    t.strictSame(first.states, ['installer.started'])
    t.strictSame(second.states, steps)
  })
}

t.test('what stays on the system names all, and the one that answered first', async t => {
  const [first, second] = [await dead(t), await startFakeController(t)]
  const third = await startFakeController(t)
  for (const { files } of [second, third]) files.set('/boot/files/node001', Buffer.alloc(1024))
  const { run, machine, urls } = await installed(t, { shell: 'bash' }, [first, second, third], {
    data: { files: true, files_token: 'the.running.token' },
    // The image has no programs.
    edit: script => script.replace('files_said=$(in_image', 'files_said=$(true')
  })
  exits(t, [run], [0])
  const [a, b, c] = [urls[1], urls[2], urls[0]]
  t.match(machine.read('etc/svc/files.conf'), `url ${a} ${b} ${c}\nnode node001\n`)
  const path = '/boot/running/node001/rocky9.tar.gz'
  const tries = (at: string, command: string) =>
    [a, b].map(url => `${at}${command} '${url}${path}'"$query" && exit\n`).join('') +
    `${at}exec ${command} '${c}${path}'"$query"\n`
  const text = machine.read('etc/svc/running')
  t.equal(
    text.slice(text.indexOf('if command -v curl')),
    `if command -v curl > /dev/null; then
${tries('  ', 'curl -q -g -s -S -f --max-time 60 -o /dev/null')}fi
${tries('', 'wget -q -O /dev/null')}`
  )
})
