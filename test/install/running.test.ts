import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { install } from './install.js'
import { slowClock } from './slow-clock.js'

// The system that was installed tells how systemd finds it (rules 4.26).

/** What the shipped unit of an installation asks for, on a system whose systemd says this. */
async function asked(t: Test, systemctl: string, fetcher: 'curl' | 'wget' = 'curl', uname = '') {
  const { machine } = await install(t, { shell: 'ash' })
  const directory = scratch(t)
  mkdirSync(join(directory, 'bin'))
  const program = (name: string, text: string) => {
    writeFileSync(join(directory, 'bin', name), `#!/bin/sh\n${text}\n`)
    chmodSync(join(directory, 'bin', name), 0o755)
  }
  program(fetcher, `echo "$*" >> ${directory}/asked`)
  // Each second that the unit sleeps takes two, as on a slow machine.
  for (const [name, text] of Object.entries(slowClock(join(directory, 'slept'), 2))) program(name, text)
  if (systemctl !== '') program('systemctl', systemctl)
  if (uname !== '') program('uname', uname)
  for (const name of ['cat', 'head', 'sort', 'tr', 'wc']) program(name, `exec /usr/bin/${name} "$@"`)
  let status = 0
  try {
    execFileSync('/bin/sh', [machine.image('etc/svc/running')], { env: { PATH: join(directory, 'bin') } })
  } catch (error) {
    status = (error as { status: number }).status
  }
  const read = (name: string) => {
    const file = join(directory, name)
    return existsSync(file) ? readFileSync(file, 'utf8') : ''
  }
  return { status, url: /\/boot\/running\/\S*/.exec(read('asked'))?.[0], slept: read('slept').length }
}

const path = '/boot/running/node001/rocky9.tar.gz'
const says = (state: string, units = '', again = '') =>
  `case $1 in is-system-running) echo ${state}; [ ${state} = running ] ;; list-units) printf '${again}' ;; show) case $4 in ssh*) echo NRestarts=3 ;; *) echo NRestarts=0 ;; esac ;; *) printf '${units}' ;; esac`

for (const fetcher of ['curl', 'wget'] as const)
  t.test(`the unit tells the state of the system and the units, by ${fetcher}`, async t => {
    t.match(await asked(t, says('running'), fetcher), { status: 0, url: `${path}?state=running&units=` })
    const failed =
      'ssh.service loaded failed failed OpenBSD\\n\\342\\227\\217 a@b.service loaded failed\\n-.mount loaded failed\\n' +
      'dev-disk-by\\\\x2duuid-1.device loaded\\n\\n0 loaded units listed.\\n'
    const units = 'ssh.service,a%40b.service,-.mount,dev-disk-by%5Cx2duuid-1.device'
    t.match(await asked(t, says('degraded', failed), fetcher), {
      url: `${path}?state=degraded&units=${units}`
    })
  })

// rules 16.3
t.test(
  'what no healthy system has is told as a failed unit is; where nothing can be known, nothing',
  async t => {
    const faults = 'fault:no-host-name,fault:no-kernel-modules'
    const told = await asked(t, says('running'), 'curl', 'echo localhost')
    t.match(told, { status: 0, url: `${path}?state=degraded&units=${faults}` })
    const both = await asked(t, says('degraded', 'ssh.service loaded failed\\n'), 'curl', 'echo localhost')
    t.match(
      await asked(
        t,
        says('running', '', 'ssh.service loaded activating auto-restart x\\nsvc-a.service x\\n')
      ),
      {
        url: `${path}?state=degraded&units=ssh.service`
      }
    )
    const starts = 'ssh.service loaded activating start-pre x\\nfstrim.service loaded activating start x\\n'
    t.match(await asked(t, says('running', '', starts)), { url: `${path}?state=degraded&units=ssh.service` })
    t.match(both, { url: `${path}?state=degraded&units=${faults},ssh.service` })
  }
)

t.test('a system in emergency mode tells nothing, and tries again', async t => {
  t.match(await asked(t, says('maintenance')), { status: 1, url: undefined })
})

t.test(
  'it waits until systemd is done, five minutes at most, and tells it again by a new start of the unit',
  async t => {
    // systemd lists jobs in no order: what is waited for comes first, whatever is left out.
    const units = Array.from({ length: 30 }, (_, i) => `u${i + 10}.service`)
    const waiting = units
      .map((unit, i) => ` ${i + 100} ${unit} start waiting\\n`)
      .toReversed()
      .join('')
    const told = units.slice(0, 18).join()
    const jobs = await asked(
      t,
      says('starting', `${waiting}  12 slow.service start running\\n   3 b.target start waiting\\n`)
    )
    t.match(jobs, {
      status: 75,
      url: `${path}?state=starting&units=slow.service,b.target,${told}`,
      slept: 150
    })
  }
)

t.test('a system without systemd, or one that does not know, says that it is up', async t => {
  t.match(await asked(t, ''), { status: 0, url: path })
  t.match(await asked(t, says('offline')), { status: 0, url: `${path}?state=offline&units=` })
})

t.test('at most 20 units are told', async t => {
  const many = Array.from({ length: 40 }, (_, i) => `u${i}.service loaded\\n`).join('')
  const { url = '' } = await asked(t, says('degraded', many))
  t.equal(url.split(',').length, 20)
})

t.test('the state of the node says so, and _why names the units', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const source = (await c.get('/config/node/n1')).body.config.node.n1.interfaces[0].ipaddress as string
  const tell = (query: string) => c.get(`/boot/running/n1/compute.tar.gz${query}`, { token: null, source })
  const state = async () => (await c.get('/monitor/node/n1')).body.monitor.status.n1.state
  const why = async () => (await c.get('/monitor/node/n1/_why')).body.monitor.why.n1
  const token = await scriptToken(c, 'n1')
  const completed = { monitor: { status: { n1: { state: 'installer.completed' } } } }
  await c.post('/monitor/node/n1', completed, { token, source })

  t.equal((await tell('?state=running&units=')).status, 200)
  t.equal(await state(), 'installer.completed', 'a system that is well changes no state')
  t.equal((await tell('')).status, 200, 'nor does one that was installed by an earlier svcd')
  t.equal(await state(), 'installer.completed')

  t.equal((await tell('?state=degraded&units=ssh.service,a%40b.service,dev%5Cx2d1.device')).status, 200)
  t.equal(await state(), 'running.degraded: ssh.service, a@b.service, dev\\x2d1.device')
  t.match(await why(), {
    rule: 'degraded',
    verdict: /^the system of n1 is up at .*, and degraded: ssh\.service, a@b\.service/
  })
  t.same(Object.keys((await c.get('/config/node/@status:running.degraded')).body.config.node), ['n1'])
  t.match((await c.get('/config/node/n1')).body.config.node.n1, { _running: { pack: 'compute.tar.gz' } })

  const before = await state()
  for (const query of ['?state=maintenance', '?state=maintenance&units=x.service']) {
    const refused = await tell(query)
    t.match(
      [refused.status, refused.body.message],
      [400, /node n1: a system in rescue or emergency mode is not up/]
    )
  }
  t.equal(await state(), before)
  t.equal(
    (await c.get('/boot/running/n1/x?state=degraded', { token: null, source: '10.141.9.9' })).status,
    401
  )
  t.equal(await state(), before, 'nobody else tells it')

  t.equal((await tell('?state=starting&units=slow.service')).status, 200)
  t.equal(await state(), 'running.starting: slow.service')
  const hostile = `${'x'.repeat(300)}.service,<b>,%0A,$(id),${Array.from({ length: 99 }, (_, i) => `u${i}.service`)}`
  t.equal((await tell(`?state=degraded&units=${hostile}`)).status, 200)
  t.match(await state(), /^running\.degraded: u0\.service, [\w., ]* u19\.service$/, 'units alone, 20 at most')
  t.equal((await tell('?state=running&units=')).status, 200)
  t.equal(await state(), 'running', 'all is well again')
  t.match(await why(), { rule: 'all-well' })
})
