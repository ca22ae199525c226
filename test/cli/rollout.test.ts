import { join } from 'node:path'
import t, { type Test } from 'tap'
import { bmcCluster } from '../support/bmc-cluster.js'
import { builtTree } from '../support/built-tree.js'
import { scriptToken } from '../support/callers.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { RedfishService } from '../support/redfish-service.js'
import { scratch } from '../support/scratch.js'
import { clientHere, loggedIn } from '../support/svcctl.js'
import { until } from '../support/until.js'

// One does for all controllers.
const program = join(builtTree(t.testdir()), 'bin', 'svcctl')

type Course = 'well' | 'fails' | 'silent' | 'degraded'

/**
 * A real svcd with machines that boot when their BMC resets them: they fetch their install script, report as
 * it does, and then that they run.
 */
async function beginning(t: Test, count: number) {
  const port = await freePort()
  const settings = [`control.redfish_port=${port}`, 'control.time_limit=2s', 'control.delay=0s']
  const c = await Controller.start(t, ...settings)
  await c.cluster()
  await bmcCluster(c, {
    ...{ username: 'admin', password: 'secret', protocol: 'redfish', verify_certificate: false }
  })
  const names = Array.from({ length: count }, (_, i) => `n${i + 1}`)
  const course = new Map<string, Course>()
  const booted: string[] = []
  const source = async (node: string) =>
    (await c.get(`/config/node/${node}`)).body.config.node[node].interfaces.find(
      (one: { interface: string }) => one.interface === 'BOOTIF'
    ).ipaddress
  const boot = async (node: string) => {
    const ways = {
      well: 'running',
      fails: 'installer.failed: unpack: no room',
      degraded: 'running.degraded: a.service'
    }
    const way = course.get(node) ?? 'well'
    if (way === 'silent') return
    const from = await source(node)
    const token = await scriptToken(c, node)
    const report = async (state: string) => {
      const { status, text } = await c.post(`/monitor/node/${node}`, { state }, { token, source: from })
      if (status !== 204) throw new Error(text)
    }
    if (way !== 'fails') await report('installer.completed')
    await report(ways[way])
  }
  const machines = await Promise.all(
    names.map((name, i) => RedfishService.start(t, `127.7.5.${i + 1}`, port).then(bmc => ({ name, bmc })))
  )
  for (const [i, name] of names.entries())
    await c.post(`/config/node/${name}`, {
      group: 'compute',
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster' },
        { interface: 'BMC', network: 'loop', ipaddress: `127.7.5.${i + 1}` }
      ]
    })
  for (const name of names) await boot(name)
  let booting = Promise.resolve()
  const looks = setInterval(() => {
    for (const { name, bmc } of machines)
      if (bmc.resets.splice(0).some(kind => /On|ForceRestart|PowerCycle/.test(kind))) {
        booted.push(name)
        booting = booting.then(() => boot(name))
      }
  }, 20)
  t.teardown(() => clearInterval(looks))
  c.file('new.tar.gz')
  await c.post('/config/osimage/compute', { imagefile: 'new.tar.gz' })
  await c.post('/config/osimage/compute/tag', { tag: 'november' })
  await c.post('/config/osimage/compute', { imagefile: 'compute.tar.gz' })
  const env = loggedIn(scratch(t), c)
  const svcctl = (...words: string[]) => start(program, words, { input: '', env })
  const rollout = (...words: string[]) => clientHere(['rollout', ...words], env)
  const node = async (name: string) => (await c.get(`/config/node/${name}`)).body.config.node[name]
  const tags = async () => Promise.all(names.map(async name => (await node(name)).osimagetag))
  return { c, course, booted, rollout, svcctl, node, tags }
}

// rules 14.9
t.test('batch by batch, to the end; again there is nothing to do', async t => {
  const { booted, rollout, svcctl, tags, node } = await beginning(t, 5)
  const words = ['compute', '--tag', 'november', '--batch', '40%', '--yes']
  const dry = await rollout(...words.slice(0, -1), '--dryrun')
  t.match(
    dry.stdout,
    /^dry run, nothing was changed: osimagetag=november on 5 of 5 nodes, 2 at a time: n\[1-5\]\n$/
  )
  t.match(await rollout(...words.slice(0, -1)), { code: 2, stderr: /no terminal to ask on, use --yes/ })
  const { code, stdout, stderr } = await svcctl('rollout', ...words).ended
  t.equal(code, 0, stderr)
  t.same(
    stdout.split('\n'),
    [
      ...['batch 1 of 3: n[1-2]', '2 of 2 run it', 'batch 2 of 3: n[3-4]', '2 of 2 run it'],
      ...['batch 3 of 3: n5', '1 of 1 run it', 'all 5 nodes run it', 'to go back:'],
      ...["  svcctl node set 'n[1-5]' osimagetag=", "  svcctl node power 'n[1-5]' boot", '']
    ],
    stdout
  )
  t.strictSame([...booted].sort(), ['n1', 'n2', 'n3', 'n4', 'n5'], 'each is restarted once')
  t.match(await node('n1'), { _running: { pack: 'new.tar.gz', osimagetag: 'november' }, _stale: null })
  t.match(await rollout(...words), { code: 0, stdout: 'all 5 nodes run it already\n' })
  t.strictSame(await tags(), Array(5).fill('november'))
})

// rules 14.9
t.test('it stops at failures, says why, and goes on and back', async t => {
  const { c, course, booted, rollout, svcctl, tags } = await beginning(t, 4)
  await c.post('/config/osimage/compute/tag', { tag: 'october' })
  await c.post('/config/node/n2', { osimagetag: 'october' })
  course.set('n2', 'fails')
  const words = ['@compute', '--tag', 'november', '--batch', '1', '--yes']
  const stopped = await rollout(...words)
  t.equal(stopped.code, 1)
  t.match(stopped.stderr, 'svcctl: failed: n2')
  t.match(stopped.stdout, /^n2 failed: installer\.failed: unpack: no room; .*(?:unpack|no room)/m)
  t.match(stopped.stdout, "to go on:\n  svcctl rollout '@compute' --tag november --batch 1\n")
  t.match(stopped.stdout, "  svcctl node set 'n1' osimagetag=\n  svcctl node power 'n1' boot\n")
  t.match(stopped.stdout, "  svcctl node set 'n2' osimagetag=october\n  svcctl node power 'n2' boot\n")
  t.strictSame(booted, ['n1', 'n2'])
  t.strictSame(await tags(), ['november', 'november', 'default', 'default'])

  // The same command goes on: n1 is left alone, n2 is tried again. One failure may be.
  course.set('n2', 'well')
  course.set('n3', 'degraded')
  const again = await rollout(...words, '--until-failed', '2')
  t.match(again, { code: 1, stderr: /failed: n3/, stdout: /n3 failed: running\.degraded: a\.service/ })
  t.match(again.stdout, "to go back:\n  svcctl node set 'n[3-4]' osimagetag=\n")
  t.match(again.stdout, '\n  n2: the run before printed the way back\n')
  t.notMatch(again.stdout, /osimagetag=november/, 'no way back that leads nowhere')
  t.strictSame(booted, ['n1', 'n2', 'n2', 'n3', 'n4'])
  course.set('n3', 'well')
  t.equal((await rollout(...words)).code, 0)

  const back = await svcctl('node', 'set', 'n2', 'osimagetag=october').ended
  t.equal(back.code, 0, back.stderr)
  t.match(await rollout('n2', '--tag', 'october', '--yes'), { code: 0, stdout: /all 1 nodes run it/ })
})

// rules 14.9
t.test('a BMC that does not answer, a node that is late, an interrupt', async t => {
  const { c, course, booted, rollout, svcctl, tags } = await beginning(t, 3)
  await c.post('/config/node/n1', {
    interfaces: [{ interface: 'BMC', network: 'loop', ipaddress: '127.7.5.200' }]
  })
  const first = await rollout('n1', '--tag', 'november', '--yes')
  t.match(first, { code: 1, stdout: /^n1 failed: .*127\.7\.5\.200/m })

  course.set('n2', 'silent')
  const late = await rollout('n2', '--tag', 'november', '--yes', '--wait', '0.02')
  t.match(late, { code: 1, stdout: /^n2 failed: it does not run it after 0\.02 minutes; n2 /m })
  booted.length = 0
  const words = ['rollout', 'n[2-3]', '--tag', 'november', '--batch', '1', '--yes']
  const running = svcctl(...words)
  await until(() => booted.includes('n2'), 'the restart')
  running.process.kill('SIGINT')
  const { code, stdout, stderr } = await running.ended
  t.equal(code, 1)
  t.match(stderr, 'interrupted')
  t.match(stdout, "to go on:\n  svcctl rollout 'n[2-3]' --tag november --batch 1\n")
  t.strictSame(await tags(), ['november', 'november', 'default'])
  t.strictSame(booted, ['n2'])

  course.set('n2', 'well')
  t.match(await svcctl(...words).ended, { code: 0, stdout: /all 2 nodes run it/ })
})

// rules 14.9
t.test('what is refused changes nothing', async t => {
  const { c, rollout, tags, booted } = await beginning(t, 2)
  const wrong: [string[], number, RegExp][] = [
    [['compute'], 2, /say what is rolled out: --tag TAG, --image IMAGE or both/],
    [['compute', '--tag', 'x', '--batch', '0', '--yes'], 2, /--batch takes/],
    [['compute', '--tag', 'x', '--batch', '101%', '--yes'], 2, /--batch takes/],
    [['compute', '--tag', 'x', '--until-failed', '0', '--yes'], 2, /--until-failed takes a number above 0/],
    [['compute', '--tag', 'x', '--restart', 'kexec', '--yes'], 2, /--restart takes boot, cycle, reset, none/],
    [['none', '--tag', 'november', '--yes'], 1, /none/],
    [['compute', '--tag', 'none', '--yes'], 1, /tag none|"osimagetag"/],
    [['compute', '--image', 'none', '--yes'], 1, /OS image none/],
    [['compute', '--image', 'none', '--dryrun'], 1, /OS image none/],
    [
      ['compute', '--image', 'unpacked', '--dryrun'],
      1,
      /OS image unpacked is not packed: .*nothing was changed/
    ],
    [
      ['compute', '--tag', 'november', '--rehearse', '--yes'],
      1,
      /the rehearsal of n1: .*qemu.*nothing was changed/
    ]
  ]
  await c.post('/config/osimage/unpacked', {})
  const { PATH } = process.env
  process.env.PATH = '/nonexistent'
  t.teardown(() => {
    process.env.PATH = PATH
  })
  for (const [words, code, says] of wrong) {
    const ended = await rollout(...words)
    t.equal(ended.code, code, words.join(' '))
    t.match(ended.stderr, says)
    t.notMatch(ended.stdout, 'go back')
  }
  t.strictSame(await tags(), ['default', 'default'])
  await c.post('/config/node/n1', { netboot: false })
  t.match(await rollout('compute', '--tag', 'november', '--yes'), {
    ...{
      code: 1,
      stderr: /n1 would boot from the disk: .*svcctl node reinstall 'n1' first; nothing was changed/
    }
  })
  await c.post('/config/node/n1', { netboot: true })
  await c.post('/config/node/n2/interfaces/BMC/_delete', {})
  const stranded = (name: string) =>
    new RegExp(`svcctl: ${name}: no BMC can restart them \\(.*--restart none; nothing was changed`)
  for (const words of [['--dryrun'], ['--yes']])
    t.match(await rollout('compute', '--tag', 'november', ...words), { code: 1, stderr: stranded('n2') })
  await c.post('/config/bmcsetup/incomplete', { username: 'admin' })
  await c.post('/config/node/n1', { bmcsetupname: 'incomplete' })
  t.match(await rollout('n1', '--tag', 'november', '--yes'), { code: 1, stderr: stranded('n1') })
  t.strictSame(await tags(), ['default', 'default'])
  t.strictSame(booted, [])
})

// rules 14.9
t.test('another image, and restarts by something else', async t => {
  const { c, rollout, svcctl, node } = await beginning(t, 2)
  c.file('other.tar.gz')
  await c.post('/config/osimage/other', {
    ...{ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'other.tar.gz' }
  })
  const running = svcctl('rollout', 'n1', '--image', 'other', '--restart', 'none', '--yes')
  await running.says('restart them now: n1\n')
  t.equal((await svcctl('node', 'power', 'n1', 'boot').ended).code, 0)
  t.match(await running.ended, { code: 0, stdout: /svcctl node set 'n1' osimage= osimagetag=\n/ })
  t.match(await node('n1'), { osimage: 'other', osimagetag: 'default', _running: { pack: 'other.tar.gz' } })
  // A pack that a node runs already costs no restart.
  await c.post('/config/osimage/other/tag', { tag: 'same' })
  const same = await rollout('n1', '--tag', 'same', '--yes')
  t.match(same, { code: 0, stdout: /batch 1 of 1: n1\n1 of 1 run it\n/ })
})
